import { wait } from '../../shared/until-allowed.ts'
import { messagesOf, redact, type Screen } from '../output.ts'
import type { Read } from './reading.ts'
import { View } from './view.ts'

/** How often it is read, as the user has written it, and in milliseconds. */
interface Interval {
  readonly text: string
  readonly ms: number
}

/** Reads and shows the limits again and again, until the user stops. Keys are answered while it reads. */
export async function showLive(screen: Screen, read: Read, every: Interval): Promise<void> {
  const stopping = new AbortController()
  const view = new View(every.text)
  const draw = () => screen.draw(view.lines(screen.size()))
  screen.open({
    pressed: (key) => (view.press(key) ? stopping.abort() : draw()),
    resized: draw,
    ended: () => stopping.abort(),
  })
  const { signal } = stopping
  const stopped = new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve()))
  draw()
  try {
    while (!signal.aborted) {
      const reading = read(view.search).then(
        (report) => {
          view.report = report
          view.failure = undefined
        },
        (error: unknown) => {
          // At first, the address or an option may be wrong. Later, the database may come back.
          if (!view.report) throw error
          view.failure = redact(messagesOf(error))
        },
      )
      await Promise.race([reading, stopped])
      if (!signal.aborted) draw()
      else reading.catch(() => {})
      await wait(every.ms, signal).catch(() => {})
    }
  } finally {
    screen.close()
  }
}
