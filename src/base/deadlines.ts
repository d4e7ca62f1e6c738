// The only timers that end a wait. Timers run before the process reads what has arrived. So when a process was
// busy, a timer alone cannot tell a slow database from an answer that nobody has read.

/** What comes later than this after its time shows that the process was busy. */
const LATE_MS = 10

/** In so many steps the time of a deadline passes. In each, the process reads what has arrived. */
const STEPS = 10

/**
 * The longest timer. A longer one fires at once.
 * https://developer.mozilla.org/docs/Web/API/Window/setTimeout#maximum_delay_value
 */
export const MAX_TIMER_MS: number = 2 ** 31 - 1

/**
 * Calls `over` when a time has passed. No call takes weeks, so a longer time than a timer's never does.
 *
 * Time in which the process was busy does not count: of a step that comes late, only its own length does. And
 * the time never ends in the first late step, because what arrived meanwhile is read after it. So in a process
 * that is always busy it ends after eleven of its tasks.
 *
 * @returns A function that stops it.
 */
export function startDeadline(ms: number, over: () => void): () => void {
  if (ms > MAX_TIMER_MS) return () => {}
  let timer: ReturnType<typeof setTimeout> | undefined
  let leftMs = ms
  let isDue = false
  const stepIn = (stepMs: number) => {
    const wholeMs = Math.max(1, Math.ceil(stepMs))
    const startedAtMs = performance.now()
    timer = setTimeout(() => {
      const tookMs = performance.now() - startedAtMs
      const wasBusy = tookMs > wholeMs + LATE_MS
      const wasDue = isDue
      // A timer that is early by the clock is right: with fake timers, the clock may be another one.
      leftMs -= wasBusy ? wholeMs : Math.max(tookMs, wholeMs)
      // Timers count whole milliseconds.
      isDue = leftMs < 0.5
      if (isDue && (wasDue || !wasBusy)) over()
      else stepIn(leftMs > 0 ? Math.min(leftMs, ms / STEPS) : ms / STEPS)
    }, wholeMs)
  }
  stepIn(ms / STEPS)
  return () => clearTimeout(timer)
}

/**
 * Does work at a time by the clock, busy or not. If the process was busy then, it first reads what has arrived,
 * and nothing more. The timer does not keep the process alive.
 *
 * @returns A function that stops it.
 */
export function doAfter(ms: number, work: () => void): () => void {
  const dueAtMs = performance.now() + ms
  let timer = setTimeout(() => {
    if (performance.now() - dueAtMs <= LATE_MS) work()
    else {
      timer = setTimeout(work, 1)
      // In some runtimes the timer is a number.
      timer.unref?.()
    }
  }, ms)
  timer.unref?.()
  return () => clearTimeout(timer)
}
