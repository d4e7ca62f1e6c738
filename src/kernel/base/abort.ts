interface SignalWaiter {
  readonly ends: Set<() => void>
  readonly onAbort: () => void
}

const waitingFor = new WeakMap<AbortSignal, SignalWaiter>()

/**
 * Calls `end` when the signal aborts. All that waits for a signal shares one listener, because Node warns of
 * more than ten. The signal must not have aborted before.
 *
 * @returns A function that stops that.
 */
export function whenAborted(signal: AbortSignal, end: () => void): () => void {
  const waiting = waitingFor.get(signal) ?? listenTo(signal)
  const { ends, onAbort } = waiting
  ends.add(end)
  return () => {
    ends.delete(end)
    if (ends.size > 0 || waitingFor.get(signal) !== waiting) return
    waitingFor.delete(signal)
    signal.removeEventListener('abort', onAbort)
  }
}

function listenTo(signal: AbortSignal): SignalWaiter {
  const ends = new Set<() => void>()
  const onAbort = () => {
    for (const end of ends) end()
  }
  const waiting = { ends, onAbort }
  waitingFor.set(signal, waiting)
  signal.addEventListener('abort', onAbort, { once: true })
  return waiting
}
