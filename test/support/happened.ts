/** How often each thing has happened, by kind: `requests` that were `late`. */
export type Happened = Record<string, Record<string, number>>

/** What has happened in this test file so far. */
export const happened: Happened = {}

/** Counts something for the end of the run. */
export function tell(kind: string, event: string, times = 1): void {
  if (times > 0) addTo(happened, kind, event, times)
}

export function addTo(all: Happened, kind: string, event: string, times: number): void {
  const events = all[kind] ?? {}
  events[event] = (events[event] ?? 0) + times
  all[kind] = events
}

declare module 'vitest' {
  interface TaskMeta {
    happened?: Happened
  }
}
