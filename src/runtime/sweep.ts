import { run } from '../database/run.ts'
import { cleanup } from '../statements/statements.ts'
import type { Namespace, Target } from './decide.ts'

/** How many rows one sweep deletes at most, so that it stays short. */
const SWEEP_ROWS = 100

/** Deletes some of the prefix's rows that have expired by `clock`; says whether that were all. */
export async function sweep(target: Target, namespace: Namespace, clock: number | null): Promise<boolean> {
  return (await sweepSome(target, namespace, clock)) < SWEEP_ROWS
}

/** Deletes all of them, a sweep at a time; those that others have locked stay for the next time. */
export async function sweepAll(target: Target, namespace: Namespace): Promise<number> {
  const clock = namespace.clock()
  let deleted = 0
  for (;;) {
    const rows = await sweepSome(target, namespace, clock)
    deleted += rows
    if (rows < SWEEP_ROWS) return deleted
  }
}

async function sweepSome(target: Target, { prefix }: Namespace, clock: number | null): Promise<number> {
  const [row] = await run(target, cleanup(target.table), { prefix, clock, rows: SWEEP_ROWS })
  return Number(row?.['deleted'])
}
