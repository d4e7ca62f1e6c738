import type { Sweeper } from '../runtime/sweep.ts'
import type { CheckerConfig } from './checker-config.ts'

/** The background sweeps of one limiter. */
export class Sweeps {
  readonly #config: CheckerConfig
  /** Loaded for the first sweep. */
  #sweeper: Sweeper | undefined

  constructor(config: CheckerConfig) {
    this.#config = config
  }

  /** Deletes some expired rows in the background. `clock` is the injected time of the call that starts it. */
  begin(clock: number | null): void {
    const sweep = this.#sweeper ? this.#sweeper.sweepInBackground(clock) : this.#first(clock)
    if (sweep) this.#config.goOn(sweep)
  }

  async #first(clock: number | null): Promise<void> {
    try {
      const { Sweeper } = await import('../runtime/sweep.ts')
      const { home, table, namespace, keepEnded } = this.#config
      this.#sweeper ??= new Sweeper(home.db, table, namespace, keepEnded)
    } catch {
      // A deployment may have removed the code of the running process. That must not end the process.
      return
    }
    await this.#sweeper.sweepInBackground(clock)
  }
}
