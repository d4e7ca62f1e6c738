import {
  canShare,
  type Decider,
  type Dispatcher,
  type Group,
  type Line,
  type Pending,
  type Request,
  sameRequest,
  type Trip,
} from './call.ts'
import { HeldLines } from './held.ts'
import { isWorthOne, Places } from './places.ts'
import { overload } from './room.ts'

/** Keys in one statement: enough for any burst, few enough to stay short. */
const MAX_KEYS = 500

/** Fewer keys than this are not worth another statement. */
const MIN_SHARE = 128

/**
 * Lets calls that arrive while checks are under way share the next statement.
 *
 * No call waits for others by a timer. A call that finds room is sent at the end of this turn of the event
 * loop, with the other calls of the turn. Within a key first come is first served: statements can overtake each
 * other, so a key is in one statement at a time, unless nobody waits for that one any more.
 */
export class Coalescer implements Dispatcher {
  readonly #decider: Decider
  readonly #places: Places
  readonly #lines = new Map<string, Line>()
  readonly #ready = new Set<Line>()
  /** The statements that somebody waits for. */
  readonly #underWay = new Set<Trip>()
  /** Made when a row is first found held. */
  #held: HeldLines | undefined
  #waiting = 0
  #starting = false

  constructor(decider: Decider, connections: number) {
    this.#decider = decider
    this.#places = new Places(connections, () => this.#start())
  }

  /** Decides the call in the next statement that has room for it. */
  add(call: Pending): void {
    const { request } = call
    const known = this.#lines.get(lineOf(request))
    const refusal = overload(known?.waiting ?? 0, this.#waiting)
    if (refusal) {
      call.fail(refusal)
      return
    }
    this.#waiting++
    const line = known ?? this.#newLine(request)
    line.waiting++
    const last = line.groups.at(-1)
    const isOpen = last !== undefined && !(line.trip && line.groups.length === 1)
    if (isOpen && sameRequest(last.request, request)) last.calls.push(call)
    else line.groups.push({ request, calls: [call] })
    if (known || line.isHeld) call.isContended = true
    this.#startSoon()
  }

  cancel(call: Pending): boolean {
    call.isOver = true
    const line = this.#lines.get(lineOf(call.request))
    if (!line || call.trip) {
      if (call.trip) this.#giveUp(call.trip, 1)
      return true
    }
    this.#waiting--
    line.waiting--
    line.takenBack++
    // Looking for each of thousands that are taken back at once would take too long.
    if (line.takenBack >= line.waiting) removeTakenBack(line)
    if (line.groups.length === 0) this.#remove(line)
    return false
  }

  #remove(line: Line): void {
    this.#lines.delete(line.id)
    this.#ready.delete(line)
    if (this.#ready.size === 0) this.#places.stopWaiting()
    this.#held?.remove(line)
  }

  #startSoon(): void {
    if (this.#starting) return
    this.#starting = true
    // Fake timers, such as Jest's, replace queueMicrotask. Promises stay.
    Promise.resolve().then(() => {
      this.#starting = false
      this.#start()
    })
  }

  #newLine(request: Request): Line {
    const line: Line = {
      id: lineOf(request),
      key: request.key,
      groups: [],
      waiting: 0,
      takenBack: 0,
      trip: undefined,
      isHeld: false,
    }
    this.#lines.set(line.id, line)
    this.#enqueue(line, request)
    return line
  }

  #enqueue(line: Line, { purpose }: Request): void {
    if (purpose !== 'look' && this.#held?.addIfHeldLately(line)) return
    this.#ready.add(line)
  }

  #start(): void {
    while (this.#isWorthOne() && this.#places.hasRoom()) this.#decide(this.#nextLines())
    this.#held?.start()
  }

  /** Whether the ready keys are worth a statement beside those of the same kind that are under way. */
  #isWorthOne(): boolean {
    const [next] = this.#ready
    let keys = 0
    for (const { lines } of this.#underWay) if (areAlike(next, lines[0])) keys += lines.length
    return isWorthOne(this.#ready.size, keys)
  }

  /**
   * Lines whose first groups one statement can decide. A burst is split over all free places, so that the
   * server works on its parts at once.
   */
  #nextLines(): Line[] {
    const share = Math.ceil(this.#ready.size / this.#places.free)
    const most = Math.min(Math.max(share, MIN_SHARE), MAX_KEYS)
    const lines: Line[] = []
    let first: Group | undefined
    for (const line of this.#ready) {
      removeTakenBack(line)
      const [group] = line.groups
      if (!group || (first && !canShare(first.request, group.request))) continue
      first ??= group
      this.#ready.delete(line)
      lines.push(line)
      if (lines.length === most) break
    }
    return lines
  }

  #decide(lines: readonly Line[]): void {
    const trip = this.#send(lines, false)
    this.#places.take(trip)
    this.#underWay.add(trip)
    const groups = lines.map(({ groups: [first] }) => first as Group)
    this.#decider
      .decideTogether(groups, (group) => this.#done(trip, group))
      .then((held) => {
        this.#places.leave(trip)
        this.#underWay.delete(trip)
        for (const group of held) {
          for (const call of group.calls) call.hold()
          this.#hold(trip, group)
        }
        this.#startSoon()
      })
  }

  #send(lines: readonly Line[], mayWait: boolean): Trip {
    const trip: Trip = { lines, mayWait, waiting: 0 }
    for (const line of lines) {
      const calls = line.groups[0]?.calls ?? []
      for (const call of calls) call.trip = trip
      line.trip = trip
      line.waiting -= calls.length
      trip.waiting += calls.length
    }
    this.#waiting -= trip.waiting
    return trip
  }

  /** The line that the statement has of a group; undefined if the line has gone on without it. */
  #lineIn(trip: Trip, { request }: Group): Line | undefined {
    const line = this.#lines.get(lineOf(request))
    return line?.trip === trip ? line : undefined
  }

  #hold(trip: Trip, group: Group): void {
    const line = this.#lineIn(trip, group)
    if (!line) return
    const calls = group.calls.filter(({ isOver }) => !isOver)
    if (calls.length === 0) {
      this.#goOn(line)
      return
    }
    for (const call of calls) call.trip = undefined
    line.groups[0] = { request: group.request, calls }
    line.waiting += calls.length
    this.#waiting += calls.length
    line.trip = undefined
    this.#held ??= new HeldLines({
      decideAlone: (each) => this.#decideAlone(each),
      tryAgain: (waiting) => {
        for (const each of waiting) {
          each.isHeld = false
          this.#ready.add(each)
        }
        this.#start()
      },
    })
    this.#held.add(line)
  }

  async #decideAlone(line: Line): Promise<void> {
    removeTakenBack(line)
    const trip = this.#send([line], true)
    const group = line.groups[0] as Group
    await this.#decider.decideAlone(group)
    this.#done(trip, group)
  }

  #done(trip: Trip, group: Group): void {
    const line = this.#lineIn(trip, group)
    if (!line) return
    this.#goOn(line)
    this.#giveUp(trip, group.calls.filter(({ isOver }) => !isOver).length)
    this.#startSoon()
  }

  /**
   * So many more callers wait for the statement no longer. Without the last one its lines go on, because it may
   * never end. What it still does to their rows is kept apart by the locks of the database.
   */
  #giveUp(trip: Trip, calls: number): void {
    trip.waiting -= calls
    if (trip.waiting > 0) return
    const stuck = trip.lines.filter((line) => line.trip === trip)
    if (stuck.length === 0) return
    this.#places.abandon(trip)
    this.#underWay.delete(trip)
    for (const line of stuck) this.#goOn(line)
    this.#startSoon()
  }

  /** Goes on with the group behind the first one. */
  #goOn(line: Line): void {
    line.groups.shift()
    line.trip = undefined
    line.isHeld = false
    const [next] = line.groups
    if (next) this.#enqueue(line, next.request)
    else this.#lines.delete(line.id)
  }
}

/** Removes the calls that were taken back from the groups that are in no statement. */
function removeTakenBack(line: Line): void {
  if (line.takenBack === 0) return
  const sent = line.trip ? 1 : 0
  const groups = line.groups.splice(sent).flatMap(({ request, calls }) => {
    const waiting = calls.filter(({ isOver }) => !isOver)
    return waiting.length > 0 ? [{ request, calls: waiting }] : []
  })
  for (const group of groups) line.groups.push(group)
  line.takenBack = 0
}

function lineOf({ key, purpose }: Request): string {
  return purpose === 'look' ? `look ${key}` : `call ${key}`
}

function areAlike(one: Line | undefined, other: Line | undefined): boolean {
  const [first, second] = [one?.groups[0], other?.groups[0]]
  return first !== undefined && second !== undefined && canShare(first.request, second.request)
}
