import type { Round } from '../measure.ts'
import type { Progress } from '../report/progress.ts'
import type { Measured } from '../rounds.ts'
import { type Connections, connectTo } from '../server/connections.ts'
import { createDatabase } from '../server/database.ts'
import type { ServerCpu } from '../server/server-cpu.ts'
import type { Settings } from '../settings.ts'

/** What a load is given. */
export interface Bench {
  readonly serverUrl: string
  /** Nothing where the server's processes cannot be seen. */
  readonly serverCpu: ServerCpu | undefined
  /** Another checkout of this repository, which takes part where that says something. */
  readonly before: string | undefined
  readonly settings: Settings
  readonly progress: Progress
}

export interface Load {
  /** As on the command line. */
  readonly name: string
  /** As in the report. */
  readonly title: string
  run(bench: Bench): Promise<Outcome>
}

export interface Outcome {
  readonly measured: readonly Measured[]
  /** Who the others are compared with. */
  readonly baseline?: string
  /** By which figure. */
  readonly comparedBy?: Figure
  /** What is no round's figure, under a name that says its unit. */
  readonly facts?: Readonly<Record<string, number>>
  /** The checks in each second, one after another, of whom it says more than the whole does. */
  readonly seconds?: Readonly<Record<string, readonly number[]>>
}

/** What contenders are compared by. */
export type Figure = Exclude<keyof Round, 'checks' | 'admitted'>

export interface LoadResult extends Outcome {
  readonly name: string
  readonly title: string
}

/** A database of the load's own and connections to it, for as long as the work takes. */
export async function withDatabase<T>(
  { serverUrl }: Bench,
  work: (connections: Connections, url: string) => Promise<T>,
): Promise<T> {
  const { url, drop } = await createDatabase(serverUrl)
  const connections = connectTo(url)
  try {
    return await work(connections, url)
  } finally {
    await connections.close()
    await drop()
  }
}
