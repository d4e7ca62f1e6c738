import type { Reporter, TestModule } from 'vitest/node'
import { addTo, type Happened } from './happened.ts'

/** Says at the end of a run what happened in the test files that count it. */
export default class Summary implements Reporter {
  onTestRunEnd(modules: readonly TestModule[]): void {
    const counting = modules.filter((module) => module.meta().happened)
    if (counting.length === 0) return
    const all: Happened = {}
    for (const module of counting) {
      for (const test of module.children.allTests()) addTo(all, 'tests', test.result().state, 1)
      for (const [kind, events] of Object.entries(module.meta().happened ?? {})) {
        for (const [event, times] of Object.entries(events)) addTo(all, kind, event, times)
      }
    }
    const lines = Object.entries(all).map(([kind, events]) => {
      const byTimes = Object.entries(events).sort(([, one], [, other]) => other - one)
      return `  ${kind}: ${byTimes.map(([event, times]) => `${times} ${event}`).join(', ')}`
    })
    console.log(['', `What happened in ${counting.length} files:`, ...lines.sort()].join('\n'))
  }
}
