/** How long and how large the loads are. */
export interface Settings {
  readonly rounds: number
  /** How long a contender is measured in each round, and how long it runs before that. */
  readonly roundMs: number
  readonly warmUpMs: number
  readonly manyRows: number
  readonly fewRows: number
  readonly expiredRows: number
  readonly hotUpdates: number
  readonly distinctKeys: number
}

export const FULL: Settings = {
  rounds: 5,
  roundMs: 1_500,
  warmUpMs: 300,
  manyRows: 10_000_000,
  fewRows: 10_000,
  expiredRows: 1_000_000,
  hotUpdates: 200_000,
  distinctKeys: 1_000_000,
}

/** For trying out: the figures say little. */
export const QUICK: Settings = {
  rounds: 2,
  roundMs: 400,
  warmUpMs: 150,
  manyRows: 200_000,
  fewRows: 10_000,
  expiredRows: 200_000,
  hotUpdates: 20_000,
  distinctKeys: 50_000,
}
