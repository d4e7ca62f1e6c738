/** Runs what somebody else has written. Its errors must not change an answer or end the process. */
export async function quietly(work: () => unknown): Promise<void> {
  try {
    await work()
  } catch {}
}
