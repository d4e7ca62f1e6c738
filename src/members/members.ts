import { checkOptions, type OptionNames } from '../kernel/base/check-options.ts'
import { cleanUp } from '../kernel/engine/maintenance.ts'
import { own } from '../kernel/errors.ts'
import * as CALLS from '../kernel/options/call-table.ts'
import type { TxOptions } from '../kernel/options/calls.ts'
import { checkKey, checkOption, isStorable } from '../kernel/options/validate.ts'
import { toHex } from '../shared/hex-id.ts'
import { type OwnRows, ownRowsOf } from '../shared/own-rows.ts'
import type { Added, Counted, NotAdded } from './answers.ts'
import { add, list, remove, type Where } from './ask.ts'
import { ADD, type AddOptions, CONFIG, checkLimit, lengthOf, type MembersConfig } from './options.ts'

/**
 * A limit on how many different members a key has in a window, such as the devices of an account. In any
 * interval as long as the window, no more than `limit` members of a key are added. Without a window, members
 * count until they are removed, such as the seats of a team.
 *
 * Create one for each limit and keep it.
 *
 * @throws RatelimitError `INVALID_PREFIX`, `INVALID_OPTION`, `INVALID_LIMIT`, `INVALID_DURATION` from the
 * constructor.
 *
 * @example
 * ```ts
 * import { Members } from 'drizzle-ratelimit/members'
 * import { db } from './app.ts'
 *
 * const devices = new Members({ db, prefix: 'devices', limit: 5, window: '30d' })
 * const { success, remaining, retryAfter } = await devices.add('account:1', 'device:7')
 * ```
 */
export class Members {
  /** The namespace of the keys. */
  readonly prefix: string
  readonly #limit: number
  readonly #windowMs: number
  readonly #rows: OwnRows

  constructor(config: MembersConfig) {
    checkOptions(config, CONFIG)
    const { limit, window, ...common } = config
    this.#limit = checkLimit(limit)
    this.#windowMs = lengthOf(window)
    this.#rows = ownRowsOf('member', common)
    this.prefix = config.prefix
  }

  /**
   * Adds a member, unless the key has as many others as it may have. A member that counts already costs
   * nothing, also above the limit of a smaller plan, and its window begins again. A denial writes nothing.
   *
   * A member that counts takes one statement. A new one takes a transaction of its own, or your `tx`, in which
   * the key stays locked for other new members until the transaction ends.
   *
   * @throws RatelimitError before any SQL `INVALID_KEY`, `INVALID_OPTION`, `INVALID_LIMIT`, `INVALID_CLOCK`;
   * then the database errors of `Ratelimit.limit`.
   *
   * @example
   * ```ts
   * import type { Members } from 'drizzle-ratelimit/members'
   *
   * declare const devices: Members
   * const added = await devices.add('account:1', 'device:7')
   * if (!added.success) console.log(`Five devices are in use. The next may come in ${added.retryAfter} ms.`)
   * else if (added.isNew) console.log('A new device.')
   * ```
   */
  async add(key: string, member: string, options: AddOptions = {}): Promise<Added | NotAdded> {
    const where = await Members.#where(this, key, member, options, ADD)
    const { limit = this.#limit, tx } = options
    return await own(add(where, checkLimit(limit), tx))
  }

  /**
   * Removes a member, so that its place is free at once.
   *
   * @returns Whether it counted.
   * @throws RatelimitError the errors of {@link Members.add}.
   *
   * @example
   * ```ts
   * import type { Members } from 'drizzle-ratelimit/members'
   *
   * declare const devices: Members
   * await devices.remove('account:1', 'device:7')
   * ```
   */
  async remove(key: string, member: string, options: TxOptions = {}): Promise<boolean> {
    const where = await Members.#where(this, key, member, options, CALLS.tx)
    return await own(remove(where, options.tx))
  }

  /**
   * Whether a member counts now. It takes no lock and writes nothing, so it also does not begin its window
   * again.
   *
   * @throws RatelimitError the errors of {@link Members.add}.
   *
   * @example
   * ```ts
   * import type { Members } from 'drizzle-ratelimit/members'
   *
   * declare const devices: Members
   * console.log(await devices.has('account:1', 'device:7'))
   * ```
   */
  async has(key: string, member: string, options: TxOptions = {}): Promise<boolean> {
    const where = await Members.#where(this, key, member, options, CALLS.tx)
    return (await own(list(where, 'one', options.tx))).length > 0
  }

  /**
   * Lists the members of a key that count now, the longest first. It takes no lock and writes nothing.
   *
   * @throws RatelimitError the errors of {@link Members.add}.
   *
   * @example
   * ```ts
   * import type { Members } from 'drizzle-ratelimit/members'
   *
   * declare const devices: Members
   * for (const { member, seen } of await devices.list('account:1')) console.log(member, new Date(seen))
   * ```
   */
  async list(key: string, options: TxOptions = {}): Promise<Counted[]> {
    const where = await Members.#where(this, key, undefined, options, CALLS.tx)
    return await own(list(where, 'all', options.tx))
  }

  /**
   * Deletes all expired rows of this prefix now. Calls also delete some by themselves.
   *
   * @returns The number of deleted rows.
   * @throws RatelimitError `INVALID_CLOCK`; the database errors of `Ratelimit.limit`.
   *
   * @example
   * ```ts
   * import type { Members } from 'drizzle-ratelimit/members'
   *
   * declare const devices: Members
   * console.log(`${await devices.cleanup()} expired rows were deleted`)
   * ```
   */
  async cleanup(): Promise<number> {
    Members.#check(this, {}, {})
    return cleanUp(this.#rows.checker)
  }

  /** Checks `this` and the options: a method without its object would end in a TypeError. */
  static #check(members: unknown, options: unknown, names: OptionNames): asserts members is Members {
    checkOption(
      #rows in Object(members),
      'A method was called without its Members: write (key, member) => members.add(key, member).',
    )
    checkOptions(options, names)
  }

  /** The rows of the key and the member. */
  static async #where(
    members: unknown,
    key: string,
    member: string | undefined,
    options: unknown,
    names: OptionNames,
  ): Promise<Where> {
    Members.#check(members, options, names)
    const { checker, onUse } = members.#rows
    const stored = await checker.stored(key)
    checkKey(stored, members.prefix)
    const isText = typeof member === 'string' && member !== '' && member.isWellFormed()
    const head = `${stored}/`
    const row = isText ? head + toHex(await checker.stored(member)) : head
    checkOption(
      (isText || member === undefined) && isStorable(row, members.prefix),
      'A member must be a string. Prefix, key and twice the member may have about 1,000 bytes together.',
    )
    onUse()
    return { checker, limited: stored, head, key: row, windowMs: members.#windowMs }
  }
}
