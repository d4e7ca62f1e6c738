import { countCpu } from '../cpu.ts'
import { type Round, Stopwatch, type Work } from '../measure.ts'

interface FloodWork extends Work {
  /**
   * It ends after so many checks, or when its time is up. A contender that breaks down would take an hour.
   */
  readonly most: number
}

/**
 * Checks a number of keys. It returns the whole and each second as a round of its own. A check belongs to the
 * second in which it ends. The rest after the last whole second is left out, because a few milliseconds say
 * nothing.
 */
export async function floodWith(work: FloodWork): Promise<{ whole: Round; seconds: readonly Round[] }> {
  const { check, key, callers, most, ms } = work
  const whole = new Stopwatch()
  const seconds: { checks: number; readonly stopwatch: Stopwatch }[] = []
  let begun = 0
  const cpu = countCpu(work.serverCpu)
  const started = performance.now()
  const caller = async () => {
    while (begun < most && performance.now() - started < ms) {
      begun++
      const asked = performance.now()
      if (!(await check(key()))) throw new Error('A check was denied.')
      const answered = performance.now()
      const place = Math.floor((answered - started) / 1000)
      while (seconds.length <= place) seconds.push({ checks: 0, stopwatch: new Stopwatch() })
      const second = seconds[place]
      if (second) second.checks++
      second?.stopwatch.add(answered - asked)
      whole.add(answered - asked)
    }
  }
  await Promise.all(Array.from({ length: callers }, caller))
  const took = performance.now() - started
  return {
    whole: { ...roundOf(begun, took, whole), ...cpu(begun) },
    seconds: seconds
      .slice(0, Math.max(1, Math.floor(took / 1000)))
      .map(({ checks, stopwatch }) => roundOf(checks, Math.min(1000, took), stopwatch)),
  }
}

function roundOf(checks: number, ms: number, stopwatch: Stopwatch): Round {
  return { checks, admitted: checks, perSecond: (checks * 1000) / ms, ...stopwatch.percentiles() }
}
