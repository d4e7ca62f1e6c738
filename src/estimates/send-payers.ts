import type { At } from '../kernel/engine/bounds.ts'
import type { LimiterCall } from '../kernel/engine/checker.ts'
import { isFound } from '../kernel/engine/funds.ts'
import { askedOf, type CombinedCalls, isRepeated } from '../kernel/lists/combined-calls.ts'
import { found } from '../kernel/lists/enough.ts'
import type { Found, Group, List } from '../kernel/lists/sending.ts'
import { takeTogether } from '../kernel/lists/together.ts'
import { checkOption } from '../kernel/options/validate.ts'
import type { Decision } from '../kernel/store/call.ts'
import type { ListStatus, PayingCall, Purse } from './funds.ts'

/** A call of a list, and the rows that pay it. */
export interface Payer {
  readonly call: LimiterCall
  readonly rows: readonly PayingCall[]
  /** Undefined if the call has one row, its own. */
  readonly purse: Purse | undefined
  /** Whether it pays nothing of the shared rate, because those before it have all of it. */
  readonly paysNothing?: true
}

/** A payer after its rows were sent. */
export interface SentPayer extends Payer {
  /** The decisions on its rows. None for a limit without a row, and if others have paid alone. */
  readonly decisions: readonly Decision[]
}

/** How the rows of payers were charged. */
export interface SentPayers {
  readonly payers: readonly SentPayer[]
  readonly asked: CombinedCalls
  readonly found: Found
  readonly status: ListStatus
}

export type NotesOfCalls = ReadonlyMap<LimiterCall, readonly LimiterCall[]>

/** What is sent together with the rows of payers. */
export interface SentWith {
  /** The calls that use up ids, or close estimates. */
  readonly ids?: readonly (LimiterCall | undefined)[] | undefined
  /** The calls that open the estimates of payers, each with the calls whose payments it notes. */
  readonly notes?: ((payers: readonly Payer[]) => NotesOfCalls) | undefined
  /** The rate that all rows pay together. Default: the rows of a call that funds pay share its rate. */
  readonly shared?: Pick<Group, 'rate' | 'least'> | undefined
}

/** A call that only its own row pays, or no row. */
export function byItself(call: LimiterCall): Payer {
  return { call, rows: [call], purse: undefined }
}

/** Sends the rows of payers as a list. */
export async function sendPayers(payers: readonly Payer[], tx: At, sentWith: SentWith): Promise<SentPayers> {
  const { asked, groups, notes } = listOfPayers(payers, tx, sentWith)
  const own = await takeTogether(asked, { groups, notes })
  const decisionOn = (each: LimiterCall) => {
    const row = asked.rowOf.get(each)
    return row ? [found(own.looks, row)] : []
  }
  return {
    payers: payers.map((payer) => ({ ...payer, decisions: payer.rows.flatMap(decisionOn) })),
    asked,
    found: own,
    status: isRepeated(asked, own) ? 'repeated' : own.isDone ? 'charged' : 'not charged',
  }
}

/**
 * The rows of payers as a list.
 *
 * @throws RatelimitError `INVALID_OPTION`, `INVALID_RATE`
 */
export function listOfPayers(
  payers: readonly Payer[],
  tx: At,
  { ids = [], notes, shared }: SentWith,
): { readonly asked: CombinedCalls } & Pick<List, 'groups' | 'notes'> {
  // A call without rows stands for itself.
  const calls = payers.flatMap(({ call, rows }) => (rows.length > 0 ? rows : [call]))
  const opening = [...(notes?.(payers) ?? NONE)]
  const opened = opening.map(([each]) => each)
  const names = opened.filter((each) => !isFound(each))
  const asked = askedOf(
    [...calls, ...opened.filter(isFound)],
    tx,
    [...ids, ...names],
    payers.map(({ call }) => call),
  )
  const groups = shared
    ? [
        groupOf(
          payers.flatMap(({ rows, paysNothing }) => (paysNothing ? [] : rows)),
          asked,
          // Funds that have the rate may have more rows than these, so less is not all that there is.
          payers.some(({ purse }) => purse && purse.has >= shared.rate)
            ? { ...shared, least: shared.rate }
            : shared,
        ),
      ]
    : groupsOf(payers, asked)
  const { rowOf } = asked
  const noted = opening.map(
    ([each, paying]) => [found(rowOf, each), paying.map((payer) => rowOf.get(payer))] as const,
  )
  return { asked, groups, notes: new Map(noted) }
}

const NONE: NotesOfCalls = new Map()

/** What each has paid of a rate that they share. A limit without a row has paid what the others have not. */
export function sharesIn(rate: number, payers: readonly SentPayer[]): readonly number[] {
  let rest = rate
  return payers.map(({ purse, decisions }) => {
    const paysRest = !purse && decisions.length === 0
    const own = paysRest ? rest : decisions.reduce((sum, { share = 0 }) => sum + share, 0)
    rest -= own
    return own
  })
}

function groupsOf(payers: readonly Payer[], asked: CombinedCalls): Group[] {
  return payers.flatMap(({ rows, purse }) => {
    const rate = purse?.rate
    return rate === undefined ? [] : [groupOf(rows, asked, { rate, least: rate })]
  })
}

/** The rows as a group that pays a rate. A limit without a row pays all the rest. */
function groupOf(
  rows: Payer['rows'],
  { rowOf }: Pick<CombinedCalls, 'rowOf'>,
  { rate, least }: Pick<Group, 'rate' | 'least'>,
): Group {
  const order = rows.map((each) => rowOf.get(each))
  const charged = order.filter((row) => row !== undefined)
  checkOption(new Set(charged).size === charged.length, 'Two of the requests are for one row.')
  const pays = rows.flatMap(({ pays: what }, place) => {
    const row = order[place]
    return what && row ? [[row, what] as const] : []
  })
  return { rate, least, order, pays: new Map(pays) }
}
