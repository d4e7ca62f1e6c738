import { sameLimiter } from '../algorithms/limiter.ts'
import { RatelimitError } from '../errors.ts'
import { type Decider, type Group, type Line, type Pending, type Request, sameRequest } from './call.ts'
import { HeldLines } from './held.ts'

/** Keys in one statement: enough for any burst, few enough to stay short. */
const MAX_KEYS = 500

/**
 * How many calls may wait: a fraction of a second's work. Later answers would come too late to be worth the
 * memory.
 */
export const MAX_WAITING = 10_000

/** Fewer keys than this are not worth another statement. */
const MIN_SHARE = 128

/**
 * Lets calls that arrive while checks are under way share the next statement.
 *
 * No call waits for a timer. A call that finds room is sent at the end of this turn of the event loop, with
 * the other calls of the turn. Within a key first come is first served: statements can overtake each other,
 * so a key is in one statement at a time.
 */
export class Coalescer {
  readonly #decider: Decider
  readonly #connections: number
  readonly #lines = new Map<string, Line>()
  readonly #ready = new Set<Line>()
  /** Made when a row is first found held. */
  #held: HeldLines | undefined
  #waiting = 0
  #running = 0
  #starting = false

  constructor(decider: Decider, connections: number) {
    this.#decider = decider
    this.#connections = connections
  }

  /** Decides the call in the next statement that has room for it. */
  add(call: Pending): void {
    if (this.#waiting >= MAX_WAITING) {
      call.fail(overloaded())
      return
    }
    this.#waiting++
    const { request } = call
    const line = this.#lines.get(lineOf(request)) ?? this.#newLine(request)
    const last = line.groups.at(-1)
    const isOpen = last !== undefined && !(line.isUnderWay && line.groups.length === 1)
    if (isOpen && sameRequest(last.request, request)) last.calls.push(call)
    else line.groups.push({ request, calls: [call] })
    this.#startSoon()
  }

  /** Takes back a call, unless it is in a statement; tells whether others hold its row. */
  cancel(call: Pending): { readonly wasSent: boolean; readonly isHeld: boolean } {
    const line = this.#lines.get(lineOf(call.request))
    const place = line?.groups.findIndex(({ calls }) => calls.includes(call)) ?? -1
    const group = line?.groups[place]
    if (!line || !group || (line.isUnderWay && place === 0)) {
      return { wasSent: true, isHeld: line?.isHeld ?? false }
    }
    group.calls.splice(group.calls.indexOf(call), 1)
    this.#waiting--
    if (group.calls.length === 0) line.groups.splice(place, 1)
    if (line.groups.length === 0) this.#remove(line)
    return { wasSent: false, isHeld: line.isHeld }
  }

  #remove(line: Line): void {
    this.#lines.delete(line.id)
    this.#ready.delete(line)
    this.#held?.remove(line)
  }

  #startSoon(): void {
    if (this.#starting) return
    this.#starting = true
    queueMicrotask(() => {
      this.#starting = false
      this.#start()
    })
  }

  #newLine(request: Request): Line {
    const line = { id: lineOf(request), key: request.key, groups: [], isUnderWay: false, isHeld: false }
    this.#lines.set(line.id, line)
    this.#enqueue(line, request)
    return line
  }

  #enqueue(line: Line, { purpose }: Request): void {
    if (purpose !== 'look' && this.#held?.addIfHeldLately(line)) return
    this.#ready.add(line)
  }

  #start(): void {
    while (this.#running < this.#connections && this.#ready.size > 0) this.#decide(this.#nextLines())
    this.#held?.start()
  }

  /**
   * Lines whose first groups one statement can decide. A burst is split over all free places, so that the
   * server works on its parts at once.
   */
  #nextLines(): Line[] {
    const share = Math.ceil(this.#ready.size / (this.#connections - this.#running))
    const most = Math.min(Math.max(share, MIN_SHARE), MAX_KEYS)
    const lines: Line[] = []
    let first: Group | undefined
    for (const line of this.#ready) {
      const [group] = line.groups
      if (!group || (first && !canShare(first, group))) continue
      first ??= group
      this.#ready.delete(line)
      this.#send(line)
      lines.push(line)
      if (lines.length === most || group.request.purpose === 'adjust') break
    }
    return lines
  }

  #decide(lines: readonly Line[]): void {
    this.#running++
    const groups = lines.map(({ groups: [first] }) => first as Group)
    const lineOfGroup = ({ request }: Group) => this.#lines.get(lineOf(request))
    this.#decider
      .decideTogether(groups, (group) => this.#done(lineOfGroup(group)))
      .then((held) => {
        this.#running--
        for (const group of held) this.#hold(lineOfGroup(group))
        this.#startSoon()
      })
  }

  #send(line: Line): void {
    line.isUnderWay = true
    this.#waiting -= line.groups[0]?.calls.length ?? 0
  }

  #hold(line: Line | undefined): void {
    if (!line) return
    this.#waiting += line.groups[0]?.calls.length ?? 0
    line.isUnderWay = false
    this.#held ??= new HeldLines({
      decideAlone: (each) => this.#decideAlone(each),
      tryAgain: (waiting) => {
        for (const each of waiting) this.#ready.add(each)
        this.#start()
      },
    })
    this.#held.add(line)
  }

  async #decideAlone(line: Line): Promise<void> {
    this.#send(line)
    await this.#decider.decideAlone(line.groups[0] as Group)
    this.#done(line)
  }

  #done(line: Line | undefined): void {
    if (!line) return
    line.groups.shift()
    line.isUnderWay = false
    line.isHeld = false
    const [next] = line.groups
    if (next) this.#enqueue(line, next.request)
    else this.#lines.delete(line.id)
    this.#startSoon()
  }
}

function lineOf({ key, purpose }: Request): string {
  return purpose === 'look' ? `look ${key}` : `call ${key}`
}

function canShare({ request: one }: Group, { request: other }: Group): boolean {
  return one.purpose === other.purpose && one.purpose !== 'adjust' && sameLimiter(one.limiter, other.limiter)
}

/** What a call is told that finds no room. */
export function overloaded(): RatelimitError {
  return new RatelimitError(
    'OVERLOADED',
    `${MAX_WAITING} calls of this limiter wait for the database already. This one was not sent, and nothing was charged.`,
  )
}
