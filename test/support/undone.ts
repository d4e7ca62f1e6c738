import { expect } from 'vitest'

const UNDO = new Error('undo')

/** Runs the work in a transaction, or a savepoint, that is rolled back. */
export async function undone<Tx>(
  db: { transaction(work: (tx: Tx) => Promise<never>): Promise<never> },
  work: (tx: Tx) => Promise<unknown>,
): Promise<void> {
  const transaction = db.transaction(async (tx) => {
    await work(tx)
    throw UNDO
  })
  await expect(transaction).rejects.toBe(UNDO)
}
