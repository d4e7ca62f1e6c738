import type { Target } from '../store/store.ts'
import type { Sweeper } from '../store/sweep.ts'

/** Hands work that continues after an answer to the runtime. */
export type GoOn = (work: Promise<unknown>) => void

/** The background sweeps of one limiter. */
export interface Sweeps {
  /** Sweeps after some of the calls, when they are decided. `clock` is their injected time. */
  after(decided: Promise<unknown>, clock: number | null): void
  /** The share of calls that sweep. */
  readonly probability: number
}

/** @param keepEnded Whether to keep windows that have ended. */
export function sweepsOf(rows: Target, probability: number, keepEnded: boolean, goOn: GoOn): Sweeps {
  /** Loaded for the first sweep. */
  let sweeper: Sweeper | undefined
  const sweep = async (clock: number | null): Promise<void> => {
    try {
      const { Sweeper } = await import('../store/sweep.ts')
      sweeper ??= new Sweeper(rows, keepEnded)
    } catch {
      // A deployment may have removed the code of the running process. That must not end the process.
      return
    }
    await sweeper.sweepInBackground(clock)
  }
  const begin = (clock: number | null): void => {
    const sweeping = sweeper ? sweeper.sweepInBackground(clock) : sweep(clock)
    if (sweeping) goOn(sweeping)
  }
  return {
    after(decided, clock) {
      if (Math.random() >= probability) return
      // The statement of another request may decide this call, but `waitUntil` must be called in this request.
      decided.then(
        () => begin(clock),
        () => {},
      )
    },
    probability,
  }
}
