const cell = new Int32Array(new SharedArrayBuffer(4))

/** Keeps the process from reading anything, and leaves the processor to other tests. */
export function block(ms: number): void {
  Atomics.wait(cell, 0, 0, ms)
}

/** Lets what was called reach the database. Drivers send in one of the next turns. */
export async function sent(): Promise<void> {
  for (let turn = 0; turn < 3; turn++) await new Promise(setImmediate)
}
