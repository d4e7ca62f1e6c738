import type { ServerResponse } from 'node:http'
import type { Passed } from './guard.ts'
import type { Eventually } from './options.ts'

/** Whether a request has failed, for each way in which it can end. */
interface FailedWhen {
  finished(): Eventually<boolean>
  left(): boolean
}

/** Settles once, when the response is sent or the client disconnects. Either may have happened already. */
export function settleAtEnd(res: ServerResponse, { settle }: Passed, { finished, left }: FailedWhen): void {
  const onFinish = () => {
    res.off('close', onLeave)
    void settle(finished)
  }
  const onLeave = () => {
    res.off('finish', onFinish)
    void settle(left)
  }
  if (res.writableFinished) void settle(finished)
  else if (res.destroyed) void settle(left)
  else res.once('finish', onFinish).once('close', onLeave)
}
