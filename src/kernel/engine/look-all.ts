import { usageOf } from '../answers/answer.ts'
import { behindBlock } from '../answers/capacity.ts'
import { isRequest, unlimitedOutcome } from '../answers/outcome.ts'
import type { Usage } from '../answers/results.ts'
import type { Connection } from '../database/connection.ts'
import { checkOption } from '../options/validate.ts'
import { decideOne } from '../queue/decide.ts'
import { applies } from '../store/answers.ts'
import type { Call, Decision, Request } from '../store/call.ts'
import type { At } from './bounds.ts'
import type { Checker } from './checker.ts'
import { gateOf, lookAtGate } from './gate.ts'
import { refusalOf } from './refusal.ts'
import { withinTimeout } from './within-timeout.ts'
import { runOn } from './work.ts'

const ONCE = { length: 1 }

/** The most keys in one statement. */
const MAX_LOOKS = 1_000

/** @throws RatelimitError `INVALID_OPTION` */
export function checkKeys(keys: readonly string[]): void {
  checkOption(
    Array.isArray(keys) && keys.length <= MAX_LOOKS,
    `getRemainingAll takes a list of at most ${MAX_LOOKS} keys.`,
  )
}

/**
 * Looks at the keys of calls with one limiter, in one statement, and at the gate in another one. The
 * answers have the order of the calls.
 */
export function lookAll(checker: Checker, calls: readonly Call[], tx: At): Promise<Usage[]> {
  const keys = calls.map(({ key }) => key)
  return withinTimeout([checker], tx, async (at) =>
    behindGate(checker, keys, await usagesOf(checker, calls, at), at),
  )
}

/** What keys have while blocks deny their calls. */
export async function behindGate(
  checker: Checker,
  keys: readonly string[],
  usages: Usage[],
  tx: At,
): Promise<Usage[]> {
  const gate = gateOf(checker)
  if (!gate) return usages
  const looks = keys.flatMap((key) => lookAtGate(checker, key)?.call ?? [])
  const blocks = await usagesOf(gate, looks, tx)
  return usages.map((usage, place) => behindBlock(usage, blocks[place]?.blockedUntil))
}

async function usagesOf(checker: Checker, calls: readonly Call[], tx: At): Promise<Usage[]> {
  const requests = [...new Map(calls.filter(isRequest).map((call) => [call.key, call])).values()]
  const look = (connection: Connection) => decisionsOn(requests, checker, connection)
  const decisions = requests.length === 0 ? undefined : await runOn(checker, tx, 'looks', look)
  return calls.map((call) => {
    const decision = decisions?.get(call.key) ?? unlimitedOutcome(call, checker.clockMs()).decision
    return usageOf(call.limiter, decision)
  })
}

async function decisionsOn(
  requests: readonly Request[],
  { rows: { table, namespace } }: Checker,
  connection: Connection,
): Promise<ReadonlyMap<string, Decision>> {
  const target = { connection, table, namespace, commit: 'as the session' } as const
  const asked = requests.map((request) => ({ request, calls: ONCE }))
  const answers = await table.store.look(target, asked, false)
  const found = new Map<string, Decision>()
  for (const [place, one] of asked.entries()) {
    const answer = answers[place]
    // Undefined if the guessed calendar period was wrong.
    const decision = answer && applies(one, answer) ? answer : undefined
    const looked = decision ?? (await decideOne(target, one))
    const refusal = refusalOf(one.request, looked, 0)
    if (refusal) throw refusal
    found.set(one.request.key, looked)
  }
  return found
}
