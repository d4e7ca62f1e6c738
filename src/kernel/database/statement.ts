import type { RateLimitTable } from '../../../schema/index.ts'
import { onceFor } from '../base/once.ts'
import { sha256 } from './digest.ts'

/** A value that every driver can send. */
export type Value = string | number | boolean | null

export type Values = Readonly<Record<string, Value>>

export interface Statement {
  readonly sql: string
  /** The names of its parameters. The first is `$1`. */
  readonly names: readonly string[]
  /** The text under several names, by plan. Connections keep each name with a plan of its own. */
  readonly named: Map<string, NamedText>
}

/** A text and the name under which a connection may keep it. */
export interface NamedText {
  readonly sql: string
  readonly name: string
}

/**
 * The text and the name of a statement for one of its plans. The name is a hash of the text, so that every
 * process uses the same name for the same text.
 */
export async function nameText({ sql, named }: Statement, plan: string): Promise<NamedText> {
  const text = `/* ${plan} */ ${sql}`
  const made = { sql: text, name: `ratelimit_${(await sha256(text)).slice(0, 32)}` }
  named.set(plan, made)
  return made
}

export type Statements = Map<string, Statement>

/** The statements of a table. They live as long as it does: building one costs more than running it. */
export const statementsOf: (table: RateLimitTable) => Statements = /* @__PURE__ */ onceFor(() => new Map())

/** The statement of that name. It is built on first use. */
export function kept(statements: Statements, name: string, build: () => Statement): Statement {
  const known = statements.get(name)
  if (known) return known
  const built = build()
  statements.set(name, built)
  return built
}

/** How long a size counts as known. In five milliseconds, a flood of new keys adds a few pages. */
const MAX_SIZE_AGE_MS = 5

/** The size of 16 pages. For a table of this size or more, a plan for fewer pages reads too much. */
const LARGE = 4

/**
 * How often a large table may shrink. After that, its statements are planned each time, because they get new
 * names each time the table shrinks, and a connection keeps every name.
 */
const MAX_SHRUNK = 20

/** The size of a table as far as it is known. */
export type KnownSize = Pick<TableSize, 'expected' | 'isOld' | 'plan' | 'saw'>

/** The size of a table on several servers. Its statements are planned on the workers, each time. */
export const UNKNOWN_SIZE: KnownSize = { expected: 0, isOld: false, plan: 'any size', saw: () => {} }

/** The expected size of a table: the index of its size class in the statements' guard. */
export class TableSize {
  #expected = 0
  #shrunk = 0
  #seenAt = Number.NEGATIVE_INFINITY

  get expected(): number {
    return this.#expected
  }

  /** Whether a statement has to check the size of the table. */
  get isOld(): boolean {
    return performance.now() - this.#seenAt > MAX_SIZE_AGE_MS
  }

  /**
   * The name of a plan for a table of this size. Undefined if statements should be planned each time.
   *
   * When a large table has shrunk, Postgres may have planned its statements again for the small rest. So the
   * plans for large tables then get new names.
   */
  get plan(): string | undefined {
    if (this.#expected < LARGE) return `size ${this.#expected}`
    return this.#shrunk < MAX_SHRUNK ? `size ${this.#expected}, ${this.#shrunk}` : undefined
  }

  /**
   * Notes the size that a statement found, which was sent at `sentAt`. If a size was seen after that, the newer
   * one stays, because the statement may have waited for a row.
   */
  saw(size: number, sentAt: number): void {
    if (sentAt < this.#seenAt) return
    if (this.#expected >= LARGE && size < this.#expected) this.#shrunk++
    this.#expected = size
    this.#seenAt = sentAt
  }
}
