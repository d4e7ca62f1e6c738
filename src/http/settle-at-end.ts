import type { ServerResponse } from 'node:http'
import type { Http2ServerResponse } from 'node:http2'
import type { Passed } from './guard.ts'
import type { Eventually, GuardOptions } from './options.ts'

/** A response of HTTP/1, or of HTTP/2, which has a stream. */
type AnyResponse = ServerResponse & Partial<Pick<Http2ServerResponse, 'stream'>>

/**
 * Settles once, when the response is sent or the client disconnects. Either may have happened already. If the
 * client disconnected, it is unknown whether the request failed, so it counts.
 */
export function settleAtEnd(
  res: AnyResponse,
  { settle }: Passed,
  count: GuardOptions<never>['count'],
  hasFailed: () => Eventually<boolean>,
): void {
  const countsAsFailed = () => count === 'failures'
  const onEnd = () => {
    res.off('finish', onFinish).off('close', onLeave)
  }
  const onFinish = () => {
    // HTTP/2 finishes each response that is closed.
    if (res.stream && !isSent(res)) return
    onEnd()
    void settle(hasFailed)
  }
  const onLeave = () => {
    onEnd()
    void settle(countsAsFailed)
  }
  if (isSent(res)) void settle(hasFailed)
  else if (res.destroyed || res.stream?.destroyed) void settle(countsAsFailed)
  else res.on('finish', onFinish).on('close', onLeave)
}

function isSent({ writableEnded, writableFinished }: AnyResponse): boolean {
  return writableEnded && writableFinished
}
