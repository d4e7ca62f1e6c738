import type { Usage } from '../kernel/answers/results.ts'
import { parseDuration } from '../kernel/duration.ts'
import { withinTimeout } from '../kernel/engine/within-timeout.ts'
import { RatelimitError } from '../kernel/errors.ts'
import type { TxOptions } from '../kernel/options/calls.ts'
import { checkOption, checkRate, isStorable } from '../kernel/options/validate.ts'
import { lookAt, requestFor } from '../kernel/store/call.ts'
import { afterChange } from '../shared/after-change.ts'
import { NEVER_MS, newGrant, type Terms } from './grant.ts'
import { keyOfGrant, rowIn } from './keys.ts'
import type { DatedGrantOptions } from './options.ts'
import { readAll, readSums } from './read.ts'
import { type Account, leftOf } from './seen.ts'

/** The answer of `grant`: what the key has after it. */
export interface GrantResult extends Usage {
  /** With `once`: the id was used before, so this call has added nothing. */
  readonly repeated?: true
}

/** What was granted to a key. */
export interface Grant {
  /** What was granted. */
  readonly amount: number
  /** What was taken from it and not given back. Of undated credits with what is owed. */
  readonly used: number
  /** What can be taken from it now. */
  readonly left: number
}

/** A grant of dated credits. */
export interface DatedGrant extends Grant {
  /** The id that it was granted with. */
  readonly id: string
  /** 0 is used first. */
  readonly priority: number
  /** Unix milliseconds at which it was granted. */
  readonly granted: number
  /** Unix milliseconds at which it ends, or has ended; `Infinity` if never. */
  readonly expires: number
  /** Only if it has ended: by itself, or by `voidGrant`. What it lost is `amount - used`. */
  readonly ended?: 'expired' | 'voided'
}

const PRIORITY = 50
const MAX_PRIORITY = 100

/** A larger sum would not be exact. */
const MAX_AMOUNT = 2 ** 52

/** @throws RatelimitError `INVALID_OPTION`, `INVALID_RATE`, `INVALID_DURATION` */
export async function grant(
  account: Account,
  amount: number,
  options: DatedGrantOptions,
): Promise<GrantResult> {
  const { id, expires, priority = PRIORITY, tx } = options
  const { checker } = account
  const key = grantKey(account, id)
  checkOption(
    Number.isSafeInteger(priority) && priority >= 0 && priority <= MAX_PRIORITY,
    `priority must be a whole number from 0 to ${MAX_PRIORITY}.`,
  )
  const limiter = newGrant(account.limiter, { priority, ...endIn(expires) })
  checkRate(amount, limiter, checker.rows.namespace.prefix, 'The granted amount')
  if (amount <= 0 || amount > MAX_AMOUNT) {
    throw new RatelimitError('INVALID_RATE', 'The granted amount must be a whole number from 1 to 2^52.')
  }
  const call = requestFor(key, limiter, 'add', amount)
  return withinTimeout([checker], tx, async (at) => {
    const { decision } = await checker.decide(call, at)
    const isRepeated = (decision.state.prevCount ?? 0) > 0
    const look = () => readSums(checker, [account.key], at)
    const [usage] = await afterChange(checker, at, GRANTED, look)
    return { ...(usage as Usage), ...(isRepeated ? { repeated: true } : {}) }
  })
}

const GRANTED = 'The grant was made, but not answered. The same call again grants nothing more.'

/** @throws RatelimitError `INVALID_OPTION`, `INVALID_DURATION` */
function endIn(expires: DatedGrantOptions['expires']): Pick<Terms, 'endMs' | 'forMs'> {
  if (expires === undefined) return { endMs: NEVER_MS, forMs: NEVER_MS }
  if (!(expires instanceof Date)) return { endMs: NEVER_MS, forMs: parseDuration(expires, 'expires') }
  const endMs = expires.getTime()
  checkOption(
    endMs >= Date.UTC(2000) && endMs < Date.UTC(10_000),
    'expires must be a duration, or a Date of the years 2000 to 9999: of seconds, new Date(seconds * 1000).',
  )
  return { endMs, forMs: NEVER_MS }
}

/** The key of a grant's row. */
function grantKey({ checker, key }: Account, id: unknown): string {
  const isText = typeof id === 'string' && id !== '' && id.isWellFormed()
  const stored = isText ? keyOfGrant(key, id) : ''
  checkOption(
    isText && isStorable(stored, checker.rows.namespace.prefix),
    'The id of a grant must be a string. Prefix, key and twice the id may have 1,024 bytes together.',
  )
  return stored
}

/** The grants of a key, with those that have ended and are kept, in the order in which calls take from them. */
export async function grantsOf(account: Account, { tx }: TxOptions): Promise<DatedGrant[]> {
  const { grants, now } = await readAll(account, tx)
  return grants.flatMap((each) => {
    const { name: id } = rowIn(each.request.key)
    // Another program may have written the row.
    if (!id) return []
    const { count, prevCount, windowStart, tokens, lastRefill } = each.look.state
    const isVoided = tokens < 0
    return {
      id,
      amount: prevCount,
      used: count,
      left: leftOf(each),
      priority: isVoided ? -1 - tokens : tokens,
      granted: lastRefill,
      expires: windowStart < NEVER_MS ? windowStart : Number.POSITIVE_INFINITY,
      ...(windowStart > now ? {} : { ended: isVoided ? ('voided' as const) : ('expired' as const) }),
    }
  })
}

/** Ends a grant now. Returns what was left of it. */
export async function voidGrant(account: Account, id: string, { tx }: TxOptions): Promise<number> {
  const { checker, limiter } = account
  const key = grantKey(account, id)
  return withinTimeout([checker], tx, async (at) => {
    const look = lookAt(key, limiter)
    const { decision: found } = await checker.decide(look, at)
    // Without the row, the statement would insert one. A grant that is over keeps its end.
    if (found.state.prevCount === 0 || found.state.windowStart <= found.now) return 0
    const request = { ...look, rate: 0, purpose: 'block' as const }
    const { decision, place } = await checker.decide(request, at)
    // Equal calls that were decided together have one answer.
    return place === 0 ? leftOf({ request, look: decision }) : 0
  })
}
