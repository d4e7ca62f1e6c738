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
  /** Undefined if the server's processes cannot be seen. */
  readonly serverCpu: ServerCpu | undefined
  /** Another checkout of this repository. It takes part in the loads that can show a difference. */
  readonly before: string | undefined
  readonly settings: Settings
  readonly progress: Progress
}

export interface Load {
  /** The name on the command line. */
  readonly name: string
  /** The title in the report. */
  readonly title: string
  run(bench: Bench): Promise<Outcome>
}

export interface Outcome {
  readonly measured: readonly Measured[]
  /** The others are compared with this participant. */
  readonly baseline?: string
  /** The figure by which they are compared. */
  readonly comparedBy?: Figure
  /** Figures of the whole load, not of a round. Each name says its unit. */
  readonly facts?: Readonly<Record<string, number>>
  /** The checks in each second, for participants whose speed changes during a round. */
  readonly seconds?: Readonly<Record<string, readonly number[]>>
}

/** The figures by which contenders are compared. */
export type Figure = Exclude<keyof Round, 'checks' | 'admitted'>

export interface LoadResult extends Outcome {
  readonly name: string
  readonly title: string
}

/** Makes a database for the load and connections to it, and removes them after the work. */
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
