import { onceFor } from '../kernel/base/once.ts'
import type { Checker } from '../kernel/engine/checker.ts'
import type { Slot } from './ask.ts'
import { Line, type LineOptions } from './line.ts'
import type { Look } from './look.ts'
import type { Plan } from './plan.ts'

/** A line and the plan of those who wait in it. */
interface PlannedLine extends Plan {
  readonly line: Line
}

/** The lines of each key. Calls under another plan wait for other slots, so they have a line of their own. */
const linesOf: (checker: Checker) => Map<string, PlannedLine[]> = /* @__PURE__ */ onceFor(() => new Map())

/** What calls of one line have in common. The key is the one that is stored. */
export interface Sought extends Plan {
  readonly key: string
}

/** The line of a plan, if somebody waits in it. */
export function lineFor(checker: Checker, { key, limit, leaseMs }: Sought): Line | undefined {
  const planned = linesOf(checker).get(key)
  return planned?.find((each) => each.limit === limit && each.leaseMs === leaseMs)?.line
}

/**
 * A new line, which begins with a denial. In Workers a call cannot wait for another, so each has a line that
 * nobody else finds.
 */
export function newLine(checker: Checker, sought: Sought, options: LineOptions, denial: Look): Line {
  const { key, limit, leaseMs } = sought
  const lines = linesOf(checker)
  const onEmpty = (turn: number | undefined) => {
    const others = lines.get(key)?.filter((each) => each.line !== line) ?? []
    if (others.length > 0) lines.set(key, others)
    else lines.delete(key)
    options.onEmpty(turn)
  }
  const line = new Line({ ...options, onEmpty }, denial)
  if (checker.alone.connections !== undefined) {
    lines.set(key, [...(lines.get(key) ?? []), { limit, leaseMs, line }])
  }
  return line
}

/** Lets those look who wait in this process. */
export function slotFreed(checker: Checker, { key }: Slot): void {
  const planned = linesOf(checker).get(key.slice(0, -'#0000'.length)) ?? []
  for (const { line } of planned) line.lookForOne()
}
