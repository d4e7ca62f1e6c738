import { type Database, type Limiter, Ratelimit } from 'drizzle-ratelimit'

/** Limiters that meet the same calls at the same times. */
export interface Scene {
  readonly file: string
  readonly title: string
  readonly about: string
  readonly limiters: Readonly<Record<string, Limiter>>
  /** When the client calls, in milliseconds from the start. */
  readonly calls: readonly number[]
  readonly untilMs: number
  /** How often the picture looks at what is left, besides at each call. */
  readonly lookEveryMs: number
}

/** What one limiter answered. */
export interface Run {
  readonly name: string
  readonly limit: number
  readonly calls: readonly Call[]
  /** What was left: time and units. */
  readonly left: readonly (readonly [number, number])[]
}

export interface Call {
  readonly time: number
  readonly allowed: boolean
  readonly retryAfter: number
}

const START = Date.UTC(2026, 0, 1)

/** Plays the scene to its limiters, on a clock that is moved by hand. */
export async function play(scene: Scene, db: Database): Promise<Run[]> {
  const runs: Run[] = []
  for (const [name, limiter] of Object.entries(scene.limiters)) runs.push(await run(scene, db, name, limiter))
  return runs
}

async function run(scene: Scene, db: Database, name: string, limiter: Limiter): Promise<Run> {
  let time = 0
  const clock = () => new Date(START + time)
  const ratelimit = new Ratelimit({
    db,
    limiter,
    prefix: `${scene.file} ${name}`,
    cleanupProbability: 0,
    clock,
  })
  const { limit } = await ratelimit.getRemaining('client')
  const calls: Call[] = []
  const left: [number, number][] = []
  for (time of timesOf(scene)) {
    left.push([time, (await ratelimit.getRemaining('client')).remaining])
    for (const _ of scene.calls.filter((call) => call === time)) {
      const { success, remaining, retryAfter } = await ratelimit.limit('client')
      calls.push({ time, allowed: success, retryAfter })
      left.push([time, remaining])
    }
  }
  return { name, limit, calls, left }
}

/** The times at which something happens: a call, or a look between calls. */
function timesOf({ calls, untilMs, lookEveryMs }: Scene): number[] {
  const looks = Array.from({ length: untilMs / lookEveryMs + 1 }, (_, i) => i * lookEveryMs)
  return [...new Set([...looks, ...calls])].toSorted((one, other) => one - other)
}

/** How many of the calls were allowed. */
export function allowedOf({ calls }: Run): number {
  return calls.filter(({ allowed }) => allowed).length
}

/** The most calls that were allowed in any span of this length. */
export function mostWithin(spanMs: number, { calls }: Run): number {
  const times = calls.filter(({ allowed }) => allowed).map(({ time }) => time)
  return Math.max(...times.map((from) => times.filter((time) => time >= from && time < from + spanMs).length))
}

/** What the first denial said: milliseconds until the call would be allowed. */
export function firstWaitMs({ calls }: Run): number {
  return calls.find(({ allowed }) => !allowed)?.retryAfter ?? 0
}
