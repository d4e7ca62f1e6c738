import type { ServerResponse } from 'node:http'
import type { Passed } from './guard.ts'
import type { Eventually, GuardOptions } from './options.ts'

/**
 * Settles once, when the response is sent or the client disconnects. Either may have happened already. If the
 * client disconnected, it is unknown whether the request failed, so it counts.
 */
export function settleAtEnd(
  res: ServerResponse,
  { settle }: Passed,
  count: GuardOptions<never>['count'],
  hasFailed: () => Eventually<boolean>,
): void {
  const countsAsFailed = () => count === 'failures'
  const onFinish = () => {
    res.off('close', onLeave)
    void settle(hasFailed)
  }
  const onLeave = () => {
    res.off('finish', onFinish)
    void settle(countsAsFailed)
  }
  if (res.writableFinished) void settle(hasFailed)
  else if (res.destroyed) void settle(countsAsFailed)
  else res.once('finish', onFinish).once('close', onLeave)
}
