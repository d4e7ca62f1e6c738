import { answerEach } from '../child.ts'
import { onServers } from '../contenders/all.ts'
import type { Opened } from '../contenders/contender.ts'
import { measure, type Round } from '../measure.ts'
import { connectTo } from '../server/connections.ts'

/** What one process does for a time. */
export interface Job {
  readonly url: string
  readonly contender: string
  /** Another checkout of this repository, which may be the contender. */
  readonly before: string | undefined
  readonly limit?: number | undefined
  readonly key: string
  readonly callers: number
  readonly ms: number
}

let current: { name: string; limiter: Opened; close(): Promise<void> } | undefined

answerEach<Job, Round>(async ({ key, callers, ms, ...rest }) => {
  const { check } = await limiterFor(rest)
  return measure({ check, key: () => key, callers, ms })
})

/** The contender of the last job, or a new one. Only one has connections at a time. */
async function limiterFor({
  url,
  contender,
  before,
  limit,
}: Pick<Job, 'url' | 'contender' | 'before' | 'limit'>): Promise<Opened> {
  const name = `${contender} ${limit}`
  if (current?.name === name) return current.limiter
  await current?.close()
  const found = onServers(before).find((one) => one.name === contender)
  if (!found) throw new Error(`There is no ${contender}.`)
  const connections = connectTo(url)
  const limiter = await found.open(connections, limit)
  current = { name, limiter, close: connections.close }
  return limiter
}
