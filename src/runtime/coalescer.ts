import { sameLimiter } from '../algorithms/limiter.ts'
import { RatelimitError } from '../errors.ts'
import { Group, type PendingCall, type Request, sameRequest } from './call.ts'
import { Contended } from './contended.ts'

/** Decides groups of calls, and settles or fails each of their calls. Neither method rejects. */
export interface Decider {
  /**
   * Decides groups of different keys that ask the same of the same limiter. It waits for no row and returns
   * the groups whose rows others hold. For each other group it calls `done` as soon as the calls have their
   * answers.
   */
  decideTogether(groups: readonly Group[], done: (group: Group) => void): Promise<readonly Group[]>
  /** Decides one group, and waits for its row. */
  decideAlone(group: Group): Promise<void>
}

/** Statements that wait for rows which others hold. */
const MAX_PATIENT = 4

/** Keys in one statement: enough for any burst, few enough to stay short. */
const MAX_KEYS = 500

/**
 * How many calls may wait: a fraction of a second's work. Later answers would come too late to be worth the
 * memory.
 */
const MAX_WAITING = 10_000

/** Fewer keys than this are not worth another statement. */
const MIN_SHARE = 128

/**
 * For how long a held key waits for a place before it is tried again without waiting: its row may be free by
 * then.
 */
const RETRY_MS = 50

/** A key's calls in their order. Looks have a line of their own, for they wait for nothing. */
interface Line {
  readonly id: string
  readonly key: string
  readonly groups: Group[]
  /** Whether its first group is in a statement. */
  isUnderWay: boolean
}

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
  /** Lines whose row somebody holds: each has a statement of its own, which may wait. */
  readonly #held = new Set<Line>()
  readonly #contended = new Contended()
  #waiting = 0
  #running = 0
  #patient = 0
  #starting = false
  #retrying = false

  constructor(decider: Decider, connections: number) {
    this.#decider = decider
    this.#connections = connections
  }

  /** Decides the call in the next statement that has room for it. */
  add(call: PendingCall): void {
    if (this.#waiting >= MAX_WAITING) {
      call.fail(overloaded())
      return
    }
    this.#waiting++
    const line = this.#lines.get(lineOf(call)) ?? this.#newLine(call)
    const last = line.groups.at(-1)
    const isOpen = last !== undefined && !(line.isUnderWay && line.groups.length === 1)
    if (isOpen && sameRequest(last.request, call)) last.calls.push(call)
    else {
      const group = new Group(call)
      group.calls.push(call)
      line.groups.push(group)
    }
    this.#startSoon()
  }

  #startSoon(): void {
    if (this.#starting) return
    this.#starting = true
    queueMicrotask(() => {
      this.#starting = false
      this.#start()
    })
  }

  #newLine(call: PendingCall): Line {
    const line = { id: lineOf(call), key: call.key, groups: [], isUnderWay: false }
    this.#lines.set(line.id, line)
    this.#enqueue(line, call)
    return line
  }

  #enqueue(line: Line, { purpose }: Request): void {
    if (purpose !== 'look' && this.#contended.has(line.key)) this.#held.add(line)
    else this.#ready.add(line)
  }

  #start(): void {
    while (this.#running < this.#connections && this.#ready.size > 0) this.#decide(this.#nextLines())
    for (const line of this.#held) {
      if (this.#patient === MAX_PATIENT) {
        this.#retryLater()
        return
      }
      this.#held.delete(line)
      this.#decidePatiently(line)
    }
  }

  /**
   * The places may be taken for long by rows that others hold, while the rows of these lines have become
   * free.
   */
  #retryLater(): void {
    if (this.#retrying) return
    this.#retrying = true
    setTimeout(() => {
      this.#retrying = false
      for (const line of this.#held) this.#ready.add(line)
      this.#held.clear()
      this.#start()
    }, RETRY_MS)
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
    this.#decider
      .decideTogether(groups, (group) => {
        this.#done(this.#lines.get(lineOf(group.request)))
        this.#startSoon()
      })
      .then((held) => {
        this.#running--
        for (const group of held) this.#hold(this.#lines.get(lineOf(group.request)))
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
    this.#contended.add(line.key)
    line.isUnderWay = false
    this.#held.add(line)
  }

  #decidePatiently(line: Line): void {
    this.#patient++
    this.#send(line)
    this.#decider.decideAlone(line.groups[0] as Group).then(() => {
      this.#patient--
      this.#done(line)
      this.#startSoon()
    })
  }

  #done(line: Line | undefined): void {
    if (!line) return
    line.groups.shift()
    line.isUnderWay = false
    const [next] = line.groups
    if (next) this.#enqueue(line, next.request)
    else this.#lines.delete(line.id)
  }
}

function lineOf({ key, purpose }: Request): string {
  return purpose === 'look' ? `look ${key}` : `call ${key}`
}

function canShare({ request: one }: Group, { request: other }: Group): boolean {
  return one.purpose === other.purpose && one.purpose !== 'adjust' && sameLimiter(one.limiter, other.limiter)
}

function overloaded(): RatelimitError {
  return new RatelimitError(
    'OVERLOADED',
    `${MAX_WAITING} calls of this limiter wait for the database already. This one was not sent, and nothing was charged.`,
  )
}
