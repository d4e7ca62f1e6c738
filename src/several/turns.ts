import type { Database } from '../database/database.ts'
import { Places } from '../runtime/places.ts'
import { overload } from '../runtime/room.ts'

/** How many calls of several limits may be under way on a database: a share of its pool. */
const MAX_AT_ONCE = 4

/** A call's turn to send its statement. */
export interface Turn {
  /** Whether calls for one of its rows came before it and have not ended. */
  readonly isBehind: boolean
  /** Resolves when it is its turn. */
  readonly comes: Promise<void>
  /** The call has ended. */
  leave(): void
  /** Nobody waits for the call any more. Those behind it go on, because its statement may never end. */
  giveUp(): void
}

/** A turn, as those who wait for it are kept. */
interface Waiting {
  readonly rows: readonly string[]
  /** In how many lines others are before it. */
  behind: number
  hasBegun: boolean
  readonly begin: () => void
}

/**
 * The turns of calls of several limits on one database: a few at once, and one after the other for a row. So
 * the calls of one key take one connection, however many they are.
 */
export class Turns {
  readonly #places = new Places(MAX_AT_ONCE, () => this.#start())
  /** For each row the turns for it, the first one first. */
  readonly #lines = new Map<string, Set<Waiting>>()
  readonly #ready = new Set<Waiting>()
  #waiting = 0

  /** @throws RatelimitError `OVERLOADED` */
  enter(rows: readonly string[]): Turn {
    const refusal = overload(Math.max(...rows.map((row) => this.#lines.get(row)?.size ?? 0)), this.#waiting)
    if (refusal) throw refusal
    let begin = () => {}
    const comes = new Promise<void>((resolve) => {
      begin = resolve
    })
    const turn: Waiting = { rows, behind: 0, hasBegun: false, begin }
    for (const row of rows) {
      const line = this.#lines.get(row) ?? new Set()
      this.#lines.set(row, line.add(turn))
      if (line.size > 1) turn.behind++
    }
    this.#waiting++
    const isBehind = turn.behind > 0
    if (!isBehind) this.#ready.add(turn)
    this.#start()
    return { isBehind, comes, leave: () => this.#leave(turn), giveUp: () => this.#giveUp(turn) }
  }

  #start(): void {
    for (const turn of this.#ready) {
      if (!this.#places.hasRoom()) return
      this.#ready.delete(turn)
      this.#places.take(turn)
      this.#waiting--
      turn.hasBegun = true
      turn.begin()
    }
  }

  #leave(turn: Waiting): void {
    this.#places.leave(turn)
    this.#goOn(turn)
  }

  #giveUp(turn: Waiting): void {
    if (turn.hasBegun) this.#places.abandon(turn)
    else this.#waiting--
    this.#ready.delete(turn)
    if (this.#ready.size === 0) this.#places.stopWaiting()
    this.#goOn(turn)
  }

  /** Lets those go on that are behind the turn. */
  #goOn(turn: Waiting): void {
    for (const row of turn.rows) {
      const line = this.#lines.get(row)
      const [first] = line ?? []
      if (!line?.delete(turn)) continue
      const [next] = line
      if (!next) this.#lines.delete(row)
      else if (first === turn && --next.behind === 0) this.#ready.add(next)
    }
    this.#start()
  }
}

const turns = new WeakMap<Database, Turns>()

/** The turns on a database, which all its limiters share. */
export function turnsOn(db: Database): Turns {
  const known = turns.get(db) ?? new Turns()
  turns.set(db, known)
  return known
}
