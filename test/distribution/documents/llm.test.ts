import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import {
  APICallError,
  generateText,
  type LanguageModelMiddleware,
  simulateReadableStream,
  streamText,
  wrapLanguageModel,
} from 'ai'
import { MockLanguageModelV3 } from 'ai/test'
import type { Ratelimit, RatelimitConfig } from 'drizzle-ratelimit'
import { openReservations, type Quota, type QuotaConfig } from 'drizzle-ratelimit/quota'
import { afterAll, beforeAll, beforeEach, expect, test, vi } from 'vitest'
import { db, QuotaExceeded } from '../../support/docs-app.ts'

// The code of docs/llm.md as it stands there, with the mock models of the AI SDK. The limiters' clock is this
// process' date, which the tests set.

const timed = vi.hoisted(() => ({ clock: () => new Date(), cleanupProbability: 0 }))

vi.mock('drizzle-ratelimit', async (importOriginal) => {
  const original = await importOriginal<typeof import('drizzle-ratelimit')>()
  class TimedRatelimit extends original.Ratelimit {
    constructor(config: RatelimitConfig) {
      super({ ...timed, ...config } as RatelimitConfig)
    }
  }
  return { ...original, Ratelimit: TimedRatelimit }
})

vi.mock('drizzle-ratelimit/quota', async (importOriginal) => {
  const original = await importOriginal<typeof import('drizzle-ratelimit/quota')>()
  class TimedQuota extends original.Quota {
    constructor(config: QuotaConfig) {
      super({ ...timed, ...config } as QuotaConfig)
    }
  }
  return { ...original, Quota: TimedQuota }
})

interface Meter {
  readonly minute: Quota
  readonly month: Quota
  readonly provider: Quota
  settleLost(): Promise<void>
}
type Chat = (
  org: string,
  url: string,
  body: { readonly model: string; readonly messages: unknown },
  signal: AbortSignal,
) => Promise<ReadableStream<{ readonly data: string }>>

const NAMES = ['meter', 'sdk', 'fetch', 'batch']
let folder: string
let meter: Meter
let metered: (org: string) => LanguageModelMiddleware
let chat: Chat
let org = ''
let orgs = 0

beforeAll(async () => {
  await mkdir('node_modules/.cache', { recursive: true })
  folder = await mkdtemp(resolve('node_modules/.cache/llm-'))
  await writeFile(join(folder, 'app.ts'), `export * from '${resolve('test/support/docs-app.ts')}'`)
  const blocks = [...(await readFile('docs/llm.md', 'utf8')).matchAll(/^```ts\n([\s\S]*?)^```/gm)]
  expect(blocks).toHaveLength(NAMES.length)
  for (const [place, name] of NAMES.entries()) {
    await writeFile(join(folder, `${name}.ts`), blocks[place]?.[1] ?? '')
  }
  meter = await import(join(folder, 'meter.ts'))
  ;({ metered } = await import(join(folder, 'sdk.ts')))
  ;({ chat } = await import(join(folder, 'fetch.ts')))
})
afterAll(async () => {
  vi.useRealTimers()
  await rm(folder, { recursive: true })
})
beforeEach(() => {
  vi.useFakeTimers({ toFake: ['Date'] })
  vi.setSystemTime('2026-03-10T12:00:00Z')
  org = `org:${orgs++}`
})

/** What the month and the minute have been charged, and the provider's minute of this test's model. */
async function charged(): Promise<readonly number[]> {
  const keys = [org, org, model()]
  const limits = [meter.month, meter.minute, meter.provider]
  return Promise.all(limits.map(async (limit, place) => (await limit.getRemaining(keys[place] ?? '')).used))
}

/** Each test has a model of its own, because the provider's limit is shared by all. */
function model(): string {
  return `model of ${org}`
}

const PROMPT = [{ role: 'user' as const, content: [{ type: 'text' as const, text: 'Tell me more.' }] }]
/** Four characters are a token, of the prompt and the tools. */
const PROMPT_TOKENS = Math.ceil(JSON.stringify([PROMPT, undefined]).length / 4)
const MOST = 1000

type StreamResult = Awaited<ReturnType<MockLanguageModelV3['doStream']>>
type Part = StreamResult['stream'] extends ReadableStream<infer P> ? P : never

const USAGE = {
  inputTokens: { total: 20, noCache: 20, cacheRead: 0, cacheWrite: 0 },
  outputTokens: { total: 17, text: 17, reasoning: 0 },
}
const PARTS: readonly Part[] = [
  { type: 'stream-start', warnings: [] },
  { type: 'text-start', id: '1' },
  { type: 'text-delta', id: '1', delta: 'eight ch' },
  { type: 'text-delta', id: '1', delta: 'aracters' },
  { type: 'text-end', id: '1' },
  { type: 'finish', usage: USAGE, finishReason: { unified: 'stop', raw: undefined } },
]

function modelWith(doStream: () => Promise<StreamResult>): MockLanguageModelV3 {
  return new MockLanguageModelV3({ modelId: model(), doStream })
}

/** The stream of the model, as the middleware hands it out. */
async function streamOf(doStream: () => Promise<StreamResult>): Promise<ReadableStream<Part>> {
  const wrapped = wrapLanguageModel({ model: modelWith(doStream), middleware: metered(org) })
  return (await wrapped.doStream({ prompt: PROMPT })).stream
}

function parts(chunks: readonly Part[] = PARTS): () => Promise<StreamResult> {
  return async () => ({ stream: simulateReadableStream({ chunks: [...chunks], chunkDelayInMs: null }) })
}

/** A stream that breaks after some parts. */
function breaking(chunks: readonly Part[], error: Error): () => Promise<StreamResult> {
  const left = [...chunks]
  return async () => ({
    stream: new ReadableStream({
      pull: (controller) => {
        const next = left.shift()
        if (next) controller.enqueue(next)
        else controller.error(error)
      },
    }),
  })
}

async function readAll<T>(stream: ReadableStream<T>): Promise<T[]> {
  const all: T[] = []
  for await (const part of stream) all.push(part)
  return all
}

/** What has come when it is cut after `n` parts: the prompt and the answer so far. */
function costAfter(n: number): number {
  const length = PARTS.slice(0, n).reduce(
    (sum, part) => sum + (part.type === 'text-delta' ? part.delta.length : 0),
    0,
  )
  return PROMPT_TOKENS + Math.ceil(length / 4)
}

test('a stream that ends is charged what the provider reports', async () => {
  const stream = await streamOf(parts())
  const estimate = PROMPT_TOKENS + MOST
  expect(await charged()).toEqual([estimate, estimate, estimate])
  expect(await readAll(stream)).toEqual(PARTS)
  expect(await charged()).toEqual([37, 37, 37])
})

test.each(PARTS.map((_, n) => n))('a client that goes away after %i parts', async (n) => {
  const reader = (await streamOf(parts())).getReader()
  for (let i = 0; i < n; i++) await reader.read()
  await reader.cancel('gone')
  const [ofMonth = 0, ...others] = await charged()
  // One part may have been read ahead. The prompt is charged in any case.
  expect([costAfter(n), costAfter(n + 1), n + 1 === PARTS.length ? 37 : costAfter(n)]).toContain(ofMonth)
  expect(others).toEqual([ofMonth, ofMonth])
})

test.each(PARTS.map((_, n) => n))('a stream that breaks after %i parts', async (n) => {
  const stream = await streamOf(breaking(PARTS.slice(0, n), new Error('broken')))
  await expect(readAll(stream)).rejects.toThrow('broken')
  const cost = n < 3 ? 0 : costAfter(n)
  expect(await charged()).toEqual([cost, cost, cost])
})

test.each(['AbortError', 'TimeoutError', 'ResponseAborted'])(
  'a signal that ends the call before the first token leaves the prompt charged: %s',
  async (name) => {
    const abort = Object.assign(new Error('gone'), { name })
    await expect(readAll(await streamOf(breaking([], abort)))).rejects.toThrow('gone')
    expect(await charged()).toEqual([PROMPT_TOKENS, PROMPT_TOKENS, PROMPT_TOKENS])
    await expect(streamOf(() => Promise.reject(abort))).rejects.toThrow('gone')
    expect(await charged()).toEqual([2 * PROMPT_TOKENS, 2 * PROMPT_TOKENS, 2 * PROMPT_TOKENS])
  },
)

/** Without a status the provider was not reached. */
function refusal(statusCode: number | undefined, headers: Record<string, string> = {}): APICallError {
  const rest = { url: 'https://model.test', requestBodyValues: {}, responseHeaders: headers }
  const status = statusCode === undefined ? { isRetryable: true } : { statusCode }
  return new APICallError({ message: `status ${statusCode}`, ...status, ...rest })
}

test('a call that the provider refuses costs nothing', async () => {
  await expect(streamOf(() => Promise.reject(refusal(500)))).rejects.toThrow('status 500')
  await expect(streamOf(() => Promise.reject(new TypeError('fetch failed')))).rejects.toThrow('fetch failed')
  expect(await charged()).toEqual([0, 0, 0])
  expect(await readAll(await streamOf(parts()))).toEqual(PARTS)
})

test.each([
  ['seconds', '7', 7000],
  ['a date', 'Tue, 10 Mar 2026 12:01:00 GMT', 60_000],
  ['nothing', undefined, 30_000],
  ['nonsense', 'soon', 30_000],
])('after a 429 nobody asks the model until retry-after: %s', async (_, retryAfter, ms) => {
  const headers = retryAfter === undefined ? {} : { 'retry-after': retryAfter }
  await expect(streamOf(() => Promise.reject(refusal(429, headers)))).rejects.toThrow('status 429')
  const asked = vi.fn(parts())
  await expect(streamOf(asked)).rejects.toMatchObject({ retryAfter: ms })
  expect(asked).not.toHaveBeenCalled()
  expect((await charged()).slice(0, 2)).toEqual([0, 0])
  vi.setSystemTime(Date.now() + ms - 1)
  await expect(streamOf(asked)).rejects.toMatchObject({ retryAfter: 1 })
  vi.setSystemTime(Date.now() + 1)
  expect(await readAll(await streamOf(asked))).toEqual(PARTS)
})

test('a signal with a reason of its own is a client that has gone away too', async () => {
  const mock = modelWith(() => Promise.reject(new Error('reason')))
  const wrapped = wrapLanguageModel({ model: mock, middleware: metered(org) })
  const abortSignal = AbortSignal.abort(new Error('reason'))
  await expect(wrapped.doStream({ prompt: PROMPT, abortSignal })).rejects.toThrow('reason')
  expect((await charged())[0]).toBe(PROMPT_TOKENS)
})

test('a stream that ends without its usage is charged the prompt and the answer', async () => {
  const usage = { ...USAGE, outputTokens: { total: undefined, text: undefined, reasoning: undefined } }
  const finish: Part = { type: 'finish', usage, finishReason: { unified: 'stop', raw: undefined } }
  await readAll(await streamOf(parts([...PARTS.slice(0, -1), finish])))
  expect((await charged())[0]).toBe(costAfter(PARTS.length))
  await readAll(await streamOf(parts([finish])))
  expect((await charged())[0]).toBe(costAfter(PARTS.length) + PROMPT_TOKENS)
})

test('the model is told the most that its answer may have, and a file is no text', async () => {
  const asked = vi.fn(async () => ({
    content: [],
    finishReason: { unified: 'stop' as const, raw: undefined },
    usage: USAGE,
    warnings: [],
  }))
  const mock = new MockLanguageModelV3({ modelId: model(), doGenerate: asked })
  const wrapped = wrapLanguageModel({ model: mock, middleware: metered(org) })
  const data = new Uint8Array(100_000)
  const file = { type: 'file' as const, data, mediaType: 'image/png' }
  await wrapped.doGenerate({ prompt: [{ role: 'user', content: [file] }] })
  expect(asked).toHaveBeenCalledWith(expect.objectContaining({ maxOutputTokens: MOST }))
  await wrapped.doGenerate({ prompt: PROMPT, maxOutputTokens: 7 })
  expect(asked).toHaveBeenCalledWith(expect.objectContaining({ maxOutputTokens: 7 }))
})

test('an early answer does not shorten a block, and a block that fails hides no error', async () => {
  const refused = (retryAfter: string) =>
    streamOf(() => Promise.reject(refusal(429, { 'retry-after': retryAfter })))
  let answer = (_: string) => {}
  const slow = streamOf(async () => {
    const retryAfter = await new Promise<string>((resolve) => {
      answer = resolve
    })
    throw refusal(429, { 'retry-after': retryAfter })
  })
  await vi.waitFor(async () => expect((await charged())[0]).toBeGreaterThan(0))
  await expect(refused('600')).rejects.toThrow('status 429')
  const { blockedUntil } = await meter.provider.getRemaining(model())
  answer('7')
  await expect(slow).rejects.toThrow('status 429')
  expect((await meter.provider.getRemaining(model())).blockedUntil).toBe(blockedUntil)
})

test('what one limit denies, the others do not pay', async () => {
  await meter.minute.limit(org, { rate: 19_500 })
  await expect(streamOf(parts())).rejects.toBeInstanceOf(QuotaExceeded)
  expect(await charged()).toEqual([0, 19_500, 0])
})

test('an estimate of the last second of a month stays there, and only what is above it is charged to the next', async () => {
  vi.setSystemTime('2026-03-31T23:59:59.999Z')
  const stream = await streamOf(parts())
  vi.setSystemTime('2026-04-01T00:00:00Z')
  await readAll(stream)
  expect((await charged())[0]).toBe(0)
  const large = { ...USAGE, outputTokens: { total: 2000, text: 2000, reasoning: 0 } }
  const finish: Part = { type: 'finish', usage: large, finishReason: { unified: 'stop', raw: undefined } }
  vi.setSystemTime('2026-04-30T23:59:59.999Z')
  const other = await streamOf(parts([...PARTS.slice(0, -1), finish]))
  vi.setSystemTime('2026-05-01T00:00:00Z')
  await readAll(other)
  expect((await charged())[0]).toBe(2020 - PROMPT_TOKENS - MOST)
})

test('what a process leaves open is charged as estimated, once', async () => {
  await streamOf(parts())
  const estimate = PROMPT_TOKENS + MOST
  await meter.settleLost()
  const open = () => openReservations({ db, prefix: 'llm-month', durable: true }, { key: org })
  expect(await open()).toHaveLength(1)
  vi.setSystemTime(Date.now() + 15 * 60_000)
  await meter.settleLost()
  await meter.settleLost()
  expect(await open()).toEqual([])
  expect((await charged())[0]).toBe(estimate)
})

test('streamText and generateText are limited', async () => {
  const doGenerate = vi.fn(async () => ({
    content: [{ type: 'text' as const, text: 'sixteen characters' }],
    finishReason: { unified: 'stop' as const, raw: undefined },
    usage: USAGE,
    warnings: [],
  }))
  const mock = new MockLanguageModelV3({ modelId: model(), doStream: parts(), doGenerate })
  const wrapped = wrapLanguageModel({ model: mock, middleware: metered(org) })
  const call = { model: wrapped, prompt: 'Tell me more.', maxRetries: 0 }
  expect(await streamText(call).text).toBe('eight characters')
  expect((await generateText(call)).text).toBe('sixteen characters')
  expect(await charged()).toEqual([74, 74, 74])

  // The provider was not reached.
  doGenerate.mockRejectedValueOnce(refusal(undefined))
  await expect(generateText(call)).rejects.toThrow('status undefined')
  expect(await charged()).toEqual([74, 74, 74])

  doGenerate.mockRejectedValueOnce(refusal(400))
  await expect(generateText(call)).rejects.toThrow('status 400')
  expect(await charged()).toEqual([74, 74, 74])

  // The connection breaks, or the answer cannot be read: the model may have run.
  doGenerate.mockRejectedValueOnce(new TypeError('terminated'))
  await expect(generateText(call)).rejects.toThrow('terminated')
  const [once = 0] = await charged()
  expect(once).toBeGreaterThan(74 + MOST)
  doGenerate.mockRejectedValueOnce(refusal(200))
  await expect(generateText(call)).rejects.toThrow('status 200')
  expect((await charged())[0]).toBe(2 * once - 74)

  await meter.month.limit(org, { rate: 1_000_000, force: true })
  await expect(generateText(call)).rejects.toBeInstanceOf(QuotaExceeded)
})

test('a request that is aborted in the middle of streamText', async () => {
  const controller = new AbortController()
  const mock = modelWith(async () => {
    let place = 0
    return {
      stream: new ReadableStream({
        pull: (stream) => {
          if (place === 3) {
            controller.abort()
            return stream.error(new DOMException('gone', 'AbortError'))
          }
          stream.enqueue(PARTS[place++] as Part)
        },
      }),
    }
  })
  const wrapped = wrapLanguageModel({ model: mock, middleware: metered(org) })
  const result = streamText({ model: wrapped, prompt: 'Tell me more.', abortSignal: controller.signal })
  await result.consumeStream({ onError: () => {} })
  // Waiting moves the date, and the buckets fill.
  await vi.waitFor(async () => expect((await charged())[0]).toBe(costAfter(3)))
})

test('fetch: the events, and what they cost', async () => {
  const events = [
    { choices: [{ delta: { content: 'eight ch' } }] },
    { choices: [{ delta: { content: 'aracters' } }] },
    { choices: [], usage: { total_tokens: 37 } },
  ]
  const text = `${events.map((each) => `data: ${JSON.stringify(each)}\n\n`).join('')}data: [DONE]\n\n`
  const body = { model: model(), messages: PROMPT }
  const ask = () => chat(org, 'https://model.test', body, new AbortController().signal)
  const fetch = vi.spyOn(globalThis, 'fetch')
  try {
    fetch.mockImplementation(async () => new Response(text))
    expect(await readAll(await ask())).toHaveLength(4)
    expect(await charged()).toEqual([37, 37, 37])

    const reader = (await ask()).getReader()
    await reader.read()
    await reader.cancel()
    const cut = (await charged())[0] ?? 0
    const prompt = Math.ceil(JSON.stringify(PROMPT).length / 4)
    expect([prompt + 2, prompt + 4, 37]).toContain(cut - 37)

    fetch.mockImplementation(async () => Promise.reject(new TypeError('fetch failed')))
    await expect(ask()).rejects.toThrow('fetch failed')
    expect((await charged())[0]).toBe(cut)

    fetch.mockImplementation(async () => new Response('', { status: 429, headers: { 'retry-after': '7' } }))
    await expect(ask()).rejects.toThrow('429')
    await expect(ask()).rejects.toMatchObject({ retryAfter: 7000 })
    expect((await charged())[0]).toBe(cut)
  } finally {
    fetch.mockRestore()
  }
})

interface Batch {
  readonly requests: Ratelimit
  readonly tokens: Ratelimit
  whenAllowed<T>(
    model: string,
    job: { id: string; text: string; signal?: AbortSignal },
    ask: () => Promise<T>,
  ): Promise<T>
}

test('a batch job waits for requests and tokens together, and is charged once however often it comes', async () => {
  const { requests, tokens, whenAllowed }: Batch = await import(join(folder, 'batch.ts'))
  const used = async () =>
    Promise.all([requests, tokens].map(async (limit) => (await limit.getRemaining(org)).used))
  const job = { id: org, text: 'x'.repeat(400) }
  const ask = vi.fn(async () => 'done')
  // Two processes get it, and one gets it again.
  for (const round of [[1, 2], [3]]) await Promise.all(round.map(() => whenAllowed(org, job, ask)))
  expect([ask.mock.calls.length, await used()]).toEqual([3, [1, 100]])

  await requests.limit(org, { rate: 599 })
  const waiting = whenAllowed(org, { ...job, id: `${org} waits` }, ask)
  await new Promise((resolve) => setTimeout(resolve, 20))
  expect(await used()).toEqual([600, 100])
  vi.setSystemTime(Date.now() + 100)
  expect(await waiting).toBe('done')
  expect((await requests.getRemaining(org)).remaining).toBe(0)

  // Nothing is charged if a minute is too short, which is known at once, or if the signal ends the wait.
  await tokens.limit(org, { rate: 125_000, force: true })
  const before = await used()
  await expect(whenAllowed(org, { ...job, id: `${org} denied` }, ask)).rejects.toBeInstanceOf(QuotaExceeded)
  const ended = whenAllowed(org, { ...job, id: `${org} ended`, signal: AbortSignal.timeout(5) }, ask)
  await expect(ended).rejects.toThrow()
  expect(await used()).toEqual(before)
  expect(ask).toHaveBeenCalledTimes(4)
})
