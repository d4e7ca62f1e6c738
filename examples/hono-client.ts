// Two clients of examples/hono.ts, by real requests for two minutes: npm run example:hono-client
// The first one asks every second, whatever the answer is. The second one waits as long as `Retry-After` says.
// examples/hono.svg shows what they saw.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { writeFile } from 'node:fs/promises'
import { type IncomingMessage, request } from 'node:http'
import { setTimeout as wait } from 'node:timers/promises'
import { draw } from './pictures/draw.ts'
import type { Call, Run } from './pictures/traffic.ts'

const UNTIL_MS = 130_000
const LIMIT = 10

const app = spawn('node_modules/.bin/tsx', ['examples/hono.ts'], { env: { ...process.env, PORT: '0' } })
const url = await new Promise<string>((resolve) => {
  app.stdout.on('data', (text) => resolve(/http:[/.\d]+:\d+/.exec(String(text))?.[0] ?? ''))
})
const startedAt = performance.now()

/** The requests of one client. It asks every second; a patient one waits as long as `Retry-After` says. */
async function client(name: string, localAddress: string, isPatient: boolean): Promise<Run> {
  const calls: Call[] = []
  const left: [number, number][] = []
  for (;;) {
    const time = Math.round(performance.now() - startedAt)
    if (time > UNTIL_MS) return { name, limit: LIMIT, calls, left }
    const { statusCode, headers } = await get(localAddress)
    const seconds = Number(headers['retry-after'] ?? 0)
    calls.push({ time, allowed: statusCode === 200, retryAfter: seconds * 1000 })
    left.push([time, Number(/;r=(\d+)/.exec(String(headers['ratelimit']))?.[1])])
    await wait(isPatient && seconds > 0 ? seconds * 1000 : 1000)
  }
}

/** Each client has an address of its own. */
async function get(localAddress: string): Promise<IncomingMessage> {
  const sent = request(url, { localAddress }).end()
  const [response]: IncomingMessage[] = await once(sent, 'response')
  if (!response) throw new Error('There is no response.')
  response.resume()
  return response
}

const runs = await Promise.all([
  client('asks every second', '127.0.0.1', false),
  client('waits as long as Retry-After says', '127.0.0.2', true),
])
const about = 'ten requests a minute for each address; what is left is what the header RateLimit said'
const scene = { title: 'Two clients of the Hono example', about, untilMs: UNTIL_MS }
await writeFile('examples/hono.svg', draw(scene, runs))
for (const { name, calls } of runs) {
  console.log(`${name}: ${calls.filter(({ allowed }) => allowed).length} of ${calls.length} requests served`)
}
app.kill()
