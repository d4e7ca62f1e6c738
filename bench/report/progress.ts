import cliProgress from 'cli-progress'

/** Shows progress. */
export interface Progress {
  /** How many turns the load has. */
  expect(turns: number): void
  prepare(what: string): void
  turn(name: string): void
}

/** Does the work of a load with a bar of its own. */
export async function withProgress<T>(title: string, work: (progress: Progress) => Promise<T>): Promise<T> {
  const bar = new cliProgress.SingleBar({
    format: `${title.padEnd(32)} {bar} {value}/{total} {what}`,
    barsize: 24,
    hideCursor: true,
    // It is also redrawn during a turn, but seldom.
    fps: 2,
    noTTYOutput: true,
    notTTYSchedule: 10_000,
  })
  bar.start(1, 0, { what: 'preparing' })
  let begun = 0
  try {
    const result = await work({
      expect: (turns) => bar.setTotal(turns),
      prepare: (what) => bar.update({ what: `preparing ${what}` }),
      turn: (name) => bar.update(begun++, { what: name }),
    })
    bar.update(bar.getTotal(), { what: 'done' })
    return result
  } finally {
    bar.stop()
  }
}
