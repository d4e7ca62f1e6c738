/** Keeps the process from reading anything. */
export function block(ms: number): void {
  const until = performance.now() + ms
  while (performance.now() < until);
}

/** Lets what was called reach the database. Drivers send in one of the next turns. */
export async function sent(): Promise<void> {
  for (let turn = 0; turn < 3; turn++) await new Promise(setImmediate)
}
