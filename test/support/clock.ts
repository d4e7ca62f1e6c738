/** A clock that the test moves. */
export class TestClock {
  ms: number

  constructor(ms: number = Date.UTC(2026, 0, 31, 10, 15, 0, 7)) {
    this.ms = ms
  }

  readonly now = (): Date => new Date(this.ms)

  advance(ms: number): void {
    this.ms += ms
  }
}
