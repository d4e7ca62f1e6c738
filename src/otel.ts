import { type Attributes, type MeterProvider, metrics, trace } from '@opentelemetry/api'
import { checkOptions, type NamesOf } from './kernel/base/check-options.ts'
import { type Channel, channels, type DecisionMessage } from './kernel/diagnostics.ts'
import { RatelimitError } from './kernel/errors.ts'

/** Options of `instrument`. */
export interface InstrumentOptions {
  /** The meter provider that gets the metrics. Default: the global one. */
  readonly meterProvider?: MeterProvider
}

/** An SDK's own buckets are made for milliseconds: almost every call would be in the first one, up to 5. */
const SECONDS = {
  unit: 's',
  advice: { explicitBucketBoundaries: [0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10] },
}
const LONG = { unit: 's', advice: { explicitBucketBoundaries: [0.01, 0.1, 0.5, 1, 5, 10, 60, 600, 3600] } }

const INSTRUMENT_NAMES: NamesOf<InstrumentOptions> = { meterProvider: true }

/**
 * Records the decisions and statements of all limiters as OpenTelemetry metrics, and each decision on the
 * active span.
 *
 * Metrics and spans contain no keys, because keys may be people's addresses.
 *
 * - `ratelimit.decisions`: calls, by `ratelimit.prefix` and `ratelimit.outcome`
 * - `ratelimit.decision.duration`, `ratelimit.statement.duration`, `ratelimit.wait.duration`: seconds
 * - `ratelimit.statement.keys`: how many keys share a statement, by `ratelimit.statement`
 * - `ratelimit.errors`: failed calls, by `ratelimit.prefix`, `error.type` and `ratelimit.circuit_open`: whether
 *   the call was not sent, because the database had failed five times in a row
 *
 * Call it once, after the global meter provider is set, before or after limiters are created. It needs a
 * runtime with `node:diagnostics_channel`; on others it does nothing.
 *
 * @returns A function that stops the recording.
 * @throws RatelimitError `INVALID_OPTION`
 *
 * @example
 * ```ts
 * import { instrument } from 'drizzle-ratelimit/otel'
 *
 * const stop = instrument()
 * ```
 */
export function instrument(options: InstrumentOptions = {}): () => void {
  checkOptions(options, INSTRUMENT_NAMES)
  const { meterProvider = metrics } = options
  const meter = meterProvider.getMeter('drizzle-ratelimit')
  const decisions = meter.createCounter('ratelimit.decisions', { unit: '{call}' })
  const decided = meter.createHistogram('ratelimit.decision.duration', SECONDS)
  const waited = meter.createHistogram('ratelimit.wait.duration', LONG)
  const errors = meter.createCounter('ratelimit.errors', { unit: '{call}' })
  const ran = meter.createHistogram('ratelimit.statement.duration', SECONDS)
  const shared = meter.createHistogram('ratelimit.statement.keys', { unit: '{key}' })

  const endings = [
    listen(channels.decision, (message) => {
      const attributes = { 'ratelimit.prefix': message.prefix, 'ratelimit.outcome': outcomeOf(message) }
      decisions.add(1, attributes)
      decided.record(message.durationMs / 1000, attributes)
      trace.getActiveSpan()?.setAttributes({ ...attributes, ...attributesOf(message) })
    }),
    listen(channels.wait, ({ prefix, waitMs }) => {
      // A wait of which nobody knows how long it takes is published again at its end.
      if (waitMs > 0) waited.record(waitMs / 1000, { 'ratelimit.prefix': prefix })
    }),
    listen(channels.error, ({ prefix, error }) => {
      errors.add(1, {
        'ratelimit.prefix': prefix,
        'error.type': error.code,
        'ratelimit.circuit_open': isOfCircuit(error),
      })
    }),
    listen(channels.statement, ({ statement, keys, durationMs, failed }) => {
      const attributes = { 'ratelimit.statement': statement, 'ratelimit.failed': failed }
      ran.record(durationMs / 1000, attributes)
      if (keys !== undefined) shared.record(keys, { 'ratelimit.statement': statement })
    }),
  ]
  return () => {
    for (const end of endings) end()
  }
}

/** The open circuit gives the error of an earlier call as the cause. The other errors have the driver's. */
function isOfCircuit({ code, cause }: RatelimitError): boolean {
  return code === 'UNREACHABLE' && cause instanceof RatelimitError
}

function outcomeOf({ degraded, success, wouldDeny }: DecisionMessage): string {
  if (degraded) return success ? 'degraded allowed' : 'degraded denied'
  if (wouldDeny) return 'would deny'
  return success ? 'allowed' : 'denied'
}

function attributesOf({ limit, remaining, retryAfter }: DecisionMessage): Attributes {
  const numbers = {
    'ratelimit.limit': limit,
    'ratelimit.remaining': remaining,
    'ratelimit.retry_after': retryAfter / 1000,
  }
  // Exporters write `Infinity` as null.
  return Object.fromEntries(Object.entries(numbers).filter(([, number]) => Number.isFinite(number)))
}

/** Subscribes to a channel, if the runtime has it. Returns a function that unsubscribes. */
function listen<Message>(
  channel: Channel<Message> | undefined,
  listener: (message: Message) => void,
): () => void {
  channel?.subscribe(listener)
  return () => channel?.unsubscribe(listener)
}
