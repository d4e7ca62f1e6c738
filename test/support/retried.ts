import type { Reporter, TestModule } from 'vitest/node'

/** Says at the end of a run which tests were tried again, and why: a race that `--retry` hides is still one. */
export default class Retried implements Reporter {
  onTestRunEnd(modules: readonly TestModule[]): void {
    const told = modules.flatMap(({ relativeModuleId, children }) =>
      [...children.allTests()].flatMap((test) => {
        const times = test.diagnostic()?.retryCount ?? 0
        const [first] = test.result().errors ?? []
        const why = first?.message.split('\n')[0]
        return times > 0 ? [`  ${relativeModuleId} > ${test.fullName}, ${times} more: ${why}`] : []
      }),
    )
    console.log(['', `Tests that were tried again: ${told.length}`, ...told].join('\n'))
  }
}
