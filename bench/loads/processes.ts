import { Child, scriptNextTo } from '../child.ts'
import { onServers } from '../contenders/all.ts'
import { makeKeys, type Opened } from '../contenders/contender.ts'
import { THIS_PACKAGE } from '../contenders/this-package.ts'
import { countCpu } from '../cpu.ts'
import { allAdmitted, keyNumber, type Round } from '../measure.ts'
import { type Entry, interleave } from '../rounds.ts'
import type { ServerCpu } from '../server/server-cpu.ts'
import type { Settings } from '../settings.ts'
import { type Load, withDatabase } from './load.ts'
import type { Job } from './processes-child.ts'

const PROCESSES = 4
const CALLERS = 16
const CHILD = scriptNextTo(import.meta.url, 'processes-child')
/** A limit that is used up in the first moments of a round. */
const SMALL_LIMIT = 1_000

type Run = (ms: number, limit?: number) => Promise<Round>

/**
 * Several processes check one key. Each has callers of its own.
 *
 * The store must have counted what the callers were granted. If the limit was reached, both must be the limit.
 * Otherwise a contender could be fast by counting wrongly.
 */
export const processes: Load = {
  name: '4-processes-1-key',
  title: '4 processes of 16 callers, 1 key',
  run: (bench) =>
    withDatabase(bench, async (connections, url) => {
      const { settings, progress, before } = bench
      const who = onServers(before)
      const children = Array.from({ length: PROCESSES }, () => new Child(CHILD))
      const runOf = (contender: string, key: string): Run => {
        const job: Omit<Job, 'ms'> = { url, contender, before, key, callers: CALLERS }
        return async (ms, limit) =>
          inSum(await Promise.all(children.map((child) => child.ask<Round>({ ...job, ms, limit }))))
      }
      try {
        progress.expect(settings.rounds * who.length)
        const opened = await Promise.all(
          who.map(async (contender) => ({ ...contender, limiter: await contender.open(connections) })),
        )
        for (const { limiter } of opened) await makeKeys(limiter, [keyNumber(0)])
        const entries = opened.map(({ name, store = 'postgres', limiter }): Entry => {
          const run = runOf(name, keyNumber(0))
          const serverCpu = store === 'postgres' ? bench.serverCpu : undefined
          return { name, turn: () => counted(limiter, run, settings, serverCpu) }
        })
        const measured = await interleave(entries, settings.rounds, progress)
        for (const { limiter } of opened) await limiter.close()

        const { admitted, checks } = await runOf(THIS_PACKAGE, keyNumber(1))(settings.roundMs, SMALL_LIMIT)
        if (admitted !== SMALL_LIMIT) throw new Error(`${admitted} were admitted of ${SMALL_LIMIT}.`)
        const facts = { 'at a limit of': SMALL_LIMIT, checks, admitted }
        return { measured, baseline: THIS_PACKAGE, comparedBy: 'perSecond', facts }
      } finally {
        for (const child of children) child.end()
      }
    }),
}

async function counted(
  limiter: Opened,
  run: Run,
  { warmUpMs, roundMs }: Settings,
  serverCpu: ServerCpu | undefined,
): Promise<Round> {
  const before = await limiter.taken(keyNumber(0))
  const warmUp = allAdmitted(await run(warmUpMs))
  const cpu = countCpu(serverCpu)
  const round = allAdmitted(await run(roundMs))
  // Node's CPU is what the child processes report, because this process only waits.
  const perCheck = { ...cpu(round.checks), nodeCpuUs: round.nodeCpuUs ?? Number.NaN }
  const taken = (await limiter.taken(keyNumber(0))) - before
  if (taken !== warmUp.admitted + round.admitted) {
    throw new Error(`${warmUp.admitted + round.admitted} were admitted, and ${taken} counted.`)
  }
  return { ...round, ...perCheck }
}

/** All processes as one. Their times cannot be combined, so those of the slowest process are shown. */
export function inSum(rounds: readonly Round[]): Round {
  const sum = (figure: (round: Round) => number) => rounds.reduce((total, round) => total + figure(round), 0)
  const checks = sum((round) => round.checks)
  return {
    checks,
    admitted: sum(({ admitted }) => admitted),
    perSecond: sum(({ perSecond }) => perSecond),
    p50Ms: Math.max(...rounds.map(({ p50Ms }) => p50Ms)),
    p99Ms: Math.max(...rounds.map(({ p99Ms }) => p99Ms)),
    nodeCpuUs: sum(({ checks, nodeCpuUs = Number.NaN }) => checks * nodeCpuUs) / checks,
  }
}
