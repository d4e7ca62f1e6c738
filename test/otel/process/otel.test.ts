import { AsyncLocalStorage } from 'node:async_hooks'
import diagnostics from 'node:diagnostics_channel'
import { type Context, type ContextManager, context, ROOT_CONTEXT, trace } from '@opentelemetry/api'
import { type Histogram, MeterProvider, MetricReader } from '@opentelemetry/sdk-metrics'
import { BasicTracerProvider, type ReadableSpan } from '@opentelemetry/sdk-trace-base'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { Ratelimit } from '../../../src/index.ts'
import { instrument } from '../../../src/otel.ts'
import { Semaphore } from '../../../src/semaphore/index.ts'
import { useDatabase } from '../../support/databases.ts'
import { errorOf } from '../../support/errors.ts'
import { watch } from '../../support/watch.ts'

const database = useDatabase()

/** Reads when it is asked to. */
class Reader extends MetricReader {
  protected override onForceFlush(): Promise<void> {
    return Promise.resolve()
  }

  protected override onShutdown(): Promise<void> {
    return Promise.resolve()
  }

  /** Each metric's sum, or number of measurements, by its name and attributes. */
  async read(): Promise<Record<string, number>> {
    const { resourceMetrics } = await this.collect()
    const found: Record<string, number> = {}
    for (const { metrics } of resourceMetrics.scopeMetrics) {
      for (const { descriptor, dataPoints } of metrics) {
        for (const { attributes, value } of dataPoints) {
          const about = [descriptor.name, ...Object.values(attributes)].join(' ')
          found[about] = typeof value === 'number' ? value : value.count
        }
      }
    }
    return found
  }
}

/** Which span is active, through everything that is awaited. */
const contexts = new AsyncLocalStorage<Context>()
const manager: ContextManager = {
  active: () => contexts.getStore() ?? ROOT_CONTEXT,
  with: (active, work, self, ...args) => contexts.run(active, () => work.apply(self, args)),
  bind: (_active, target) => target,
  enable: () => manager,
  disable: () => manager,
}
beforeAll(() => {
  context.setGlobalContextManager(manager)
})
afterAll(() => context.disable())

test('decisions, statements and errors become metrics, and the active span notes its decision', async () => {
  const reader = new Reader()
  const stop = instrument({ meterProvider: new MeterProvider({ readers: [reader] }) })
  const limiter = Ratelimit.fixedWindow(2, '1h')
  const ratelimit = new Ratelimit({ db: database.db, limiter, prefix: 'api', cleanupProbability: 0 })
  const { db } = watch(database.db, () => {
    throw new TypeError('unexpected')
  })
  const broken = new Ratelimit({ db, limiter, prefix: 'broken' })

  const tracer = new BasicTracerProvider().getTracer('test')
  const span = tracer.startSpan('request')
  const inSpan = trace.setSpan(context.active(), span)
  await context.with(inSpan, async () => {
    await ratelimit.limit('alice@example.com', { rate: 2 })
    await ratelimit.limit('alice@example.com')
  })
  await errorOf(() => broken.limit('alice@example.com'))
  stop()
  await ratelimit.limit('after')

  const found = await reader.read()
  expect(found).toMatchObject({
    'ratelimit.decisions api allowed': 1,
    'ratelimit.decisions api denied': 1,
    'ratelimit.decision.duration api allowed': 1,
    'ratelimit.statement.duration take false': 2,
    'ratelimit.statement.keys take': 3,
    'ratelimit.statement.duration make false': 1,
  })
  expect(Object.keys(found).filter((name) => name.startsWith('ratelimit.errors broken'))).toHaveLength(1)
  expect(JSON.stringify(found)).not.toContain('alice')
  const { attributes } = span as unknown as ReadableSpan
  expect(attributes).toMatchObject({
    'ratelimit.prefix': 'api',
    'ratelimit.outcome': 'denied',
    'ratelimit.limit': 2,
    'ratelimit.remaining': 0,
    'ratelimit.retry_after': expect.any(Number),
  })
  expect(JSON.stringify(attributes)).not.toContain('alice')
})

test('the bucket of a duration says how long it was', async () => {
  const reader = new Reader()
  const stop = instrument({ meterProvider: new MeterProvider({ readers: [reader] }) })
  const ratelimit = new Ratelimit({
    db: database.db,
    limiter: Ratelimit.fixedWindow(2, '1h'),
    prefix: 'timed',
  })
  await ratelimit.limit('ada')
  stop()
  const { resourceMetrics } = await reader.collect()
  const metrics = resourceMetrics.scopeMetrics.flatMap((scope) => scope.metrics)
  const longest = metrics.flatMap(({ descriptor, dataPoints }) =>
    descriptor.unit === 's' ? dataPoints.map(({ value }) => value as Histogram) : [],
  )
  expect(longest.length).toBeGreaterThanOrEqual(2)
  for (const { max = 0, buckets } of longest) {
    const upTo = buckets.boundaries.find((boundary) => boundary >= max)
    expect(upTo).toBeLessThanOrEqual(Math.max(5 * max, 0.0001))
  }
})

test('a wait for a slot is as long as it was, and not as its timeout', async () => {
  const reader = new Reader()
  const stop = instrument({ meterProvider: new MeterProvider({ readers: [reader] }) })
  const slots = new Semaphore({ db: database.db, limit: 1, lease: '1h', prefix: 'slots' })
  const first = await slots.acquire('org')
  const begins = new Promise((resolve) => diagnostics.subscribe('drizzle-ratelimit:wait', resolve))
  const next = slots.acquire('org', { timeout: '1h' })
  await begins
  if (first.success) await first.release()
  expect(await next).toMatchObject({ success: true })
  stop()
  const { resourceMetrics } = await reader.collect()
  const metrics = resourceMetrics.scopeMetrics.flatMap((scope) => scope.metrics)
  const waits = metrics.find(({ descriptor }) => descriptor.name === 'ratelimit.wait.duration')
  const [waited] = waits?.dataPoints.map(({ value }) => value as Histogram) ?? []
  expect(waited?.count).toBe(1)
  expect(waited?.sum).toBeLessThan(60)
})

test('errors say whether the call was sent', async () => {
  const reader = new Reader()
  const stop = instrument({ meterProvider: new MeterProvider({ readers: [reader] }) })
  const { db } = watch(database.db, () => {
    throw Object.assign(new Error('connect ECONNREFUSED'), { code: 'ECONNREFUSED' })
  })
  const away = new Ratelimit({ db, limiter: Ratelimit.fixedWindow(2, '1h'), prefix: 'away' })
  for (let failures = 0; failures < 5; failures++) await errorOf(() => away.limit('ada'))
  // The first one tries the database.
  await Promise.allSettled([away.limit('ada'), away.limit('bob'), away.limit('eve')])
  stop()
  expect(await reader.read()).toMatchObject({
    'ratelimit.errors away UNREACHABLE false': 6,
    'ratelimit.errors away UNREACHABLE true': 2,
  })
})

test('a span has no number that is Infinity', async () => {
  const stop = instrument({ meterProvider: new MeterProvider({ readers: [] }) })
  const unlimited = new Ratelimit({ db: database.db, limiter: Ratelimit.unlimited(), prefix: 'plan' })
  const span = new BasicTracerProvider().getTracer('test').startSpan('request')
  await context.with(trace.setSpan(context.active(), span), () => unlimited.limit('alice'))
  stop()
  expect((span as unknown as ReadableSpan).attributes).toEqual({
    'ratelimit.prefix': 'plan',
    'ratelimit.outcome': 'allowed',
    'ratelimit.retry_after': 0,
  })
})
