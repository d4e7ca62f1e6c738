/** How long and how large the loads are. */
export interface Settings {
  readonly rounds: number
  /** How long a contender is measured in each round, and how long it warms up before. */
  readonly roundMs: number
  readonly warmUpMs: number
  readonly manyRows: number
  readonly fewRows: number
  readonly expiredRows: number
  readonly hotUpdates: number
  readonly distinctKeys: number
  /** How many new keys a flood has, how many rows its table has, and how long it may take. */
  readonly floodKeys: number
  readonly floodRows: number
  readonly floodMs: number
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
  floodKeys: 200_000,
  floodRows: 200_000,
  floodMs: 30_000,
}

/** For trying the benchmark. The figures say little. */
export const QUICK: Settings = {
  rounds: 2,
  roundMs: 400,
  warmUpMs: 150,
  manyRows: 200_000,
  fewRows: 10_000,
  expiredRows: 200_000,
  hotUpdates: 20_000,
  distinctKeys: 50_000,
  floodKeys: 30_000,
  floodRows: 50_000,
  floodMs: 4_000,
}
