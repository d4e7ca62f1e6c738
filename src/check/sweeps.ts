import type { Sweeper } from '../runtime/sweep.ts'
import type { CheckerConfig } from './checker-config.ts'

/** The sweeps that go on beside the calls of one limiter. */
export class Sweeps {
  readonly #config: CheckerConfig
  /** Loaded for the first sweep. */
  #sweeper: Sweeper | undefined

  constructor(config: CheckerConfig) {
    this.#config = config
  }

  /** Deletes some expired rows beside the calls; `clock` is the injected time of the call that begins it. */
  begin(clock: number | null): void {
    const sweep = this.#sweeper ? this.#sweeper.sweepBeside(clock) : this.#first(clock)
    if (sweep) this.#config.goOn(sweep)
  }

  async #first(clock: number | null): Promise<void> {
    try {
      const { Sweeper } = await import('../runtime/sweep.ts')
      const { home, table, namespace, keepEnded } = this.#config
      this.#sweeper ??= new Sweeper(home.db, table, namespace, keepEnded)
    } catch {
      // A deployment may have removed the code from under the process, which must not end by that.
      return
    }
    await this.#sweeper.sweepBeside(clock)
  }
}
