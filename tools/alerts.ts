import { type ChildProcess, spawn } from 'node:child_process'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { PGlite } from '@electric-sql/pglite'
import { PrometheusExporter } from '@opentelemetry/exporter-prometheus'
import { MeterProvider } from '@opentelemetry/sdk-metrics'
import { sql } from 'drizzle-orm'
import { drizzle } from 'drizzle-orm/pglite'
import { Ratelimit, tableSql } from '../src/index.ts'
import { instrument } from '../src/otel.ts'

// `npx tsx tools/alerts.ts` tries examples/prometheus/ on a real Prometheus, in a minute and a half. In each
// situation, the alerts that it names fire, and no other. Afterwards each query of the dashboard has data, and
// no statement seems to have taken a second. `PROMETHEUS` is where the program is, if it is not in the path.

const [METRICS_PORT, PORT] = [19_464, 19_090]

/** Minutes are seconds here. */
function hastened(rules: string): string {
  return rules.replaceAll(/\[(\d+)m\]/g, '[6s]').replaceAll(/for: \d+[ms]/g, 'for: 2s')
}

const home = await mkdtemp(join(tmpdir(), 'ratelimit-alerts-'))
await writeFile(join(home, 'alerts.yml'), hastened(await readFile('examples/prometheus/alerts.yml', 'utf8')))
await writeFile(
  join(home, 'prometheus.yml'),
  `global: { scrape_interval: 1s, evaluation_interval: 1s }
rule_files: [alerts.yml]
scrape_configs: [{ job_name: app, static_configs: [{ targets: ['127.0.0.1:${METRICS_PORT}'] }] }]
`,
)

const exporter = new PrometheusExporter({ host: '127.0.0.1', port: METRICS_PORT })
instrument({ meterProvider: new MeterProvider({ readers: [exporter] }) })

const client = await PGlite.create()
for (const statement of tableSql()) await client.exec(statement)
let isAway = false
const database = drizzle({ client })
/** A database that can be away. */
const db = new Proxy(database, {
  get: (target, name, receiver) => {
    const value = Reflect.get(target, name, receiver)
    if (name !== 'execute' || !isAway) return typeof value === 'function' ? value.bind(target) : value
    // While one call tries it, the others are not sent.
    return async () => {
      await sleep(500)
      throw Object.assign(new Error('connect ECONNREFUSED'), { code: 'ECONNREFUSED' })
    }
  },
})
await db.execute(sql`select 1`)

const wide = Ratelimit.fixedWindow(1_000_000, '1h')
const limits = {
  open: new Ratelimit({ db, limiter: wide, prefix: 'open' }),
  tight: new Ratelimit({ db, limiter: Ratelimit.fixedWindow(1, '1h'), prefix: 'tight' }),
  lenient: new Ratelimit({ db, limiter: wide, prefix: 'lenient', onError: 'allow' }),
  paced: new Ratelimit({ db, limiter: Ratelimit.tokenBucket(4, '1s', 4), prefix: 'paced' }),
}

/** What goes on, and which alerts it has to fire. */
const situations: readonly {
  readonly name: string
  readonly alerts: readonly string[]
  /** Is called ten times a second. */
  run(): Promise<unknown> | undefined
}[] = [
  { name: 'all is well', alerts: [], run: () => limits.open.limit('ada') },
  { name: 'many are denied', alerts: ['RatelimitDeniesMany tight'], run: () => limits.tight.limit('eve') },
  {
    name: 'the database is away, and onError answers',
    alerts: ['RatelimitCircuitOpen', 'RatelimitDegraded lenient', 'RatelimitFails lenient'],
    run: () => {
      isAway = true
      return limits.lenient.limit('ada')
    },
  },
  {
    name: 'the database is back',
    alerts: [],
    run: () => {
      isAway = false
      return limits.lenient.limit('ada')
    },
  },
  {
    name: 'the database is away, and calls throw',
    alerts: ['RatelimitCircuitOpen', 'RatelimitFails open'],
    run: () => {
      isAway = true
      return limits.open.limit('ada')
    },
  },
  {
    name: 'many calls wait',
    alerts: ['RatelimitCallsWait paced'],
    run: () => {
      isAway = false
      return limits.paced.blockUntilReady('ada', '20s')
    },
  },
]

async function firing(): Promise<string[]> {
  const answer = await fetch(`http://127.0.0.1:${PORT}/api/v1/alerts`)
  const { data } = (await answer.json()) as {
    data: { alerts: { state: string; labels: Record<string, string> }[] }
  }
  const names = data.alerts
    .filter(({ state }) => state === 'firing')
    .map(({ labels }) => [labels['alertname'], labels['ratelimit_prefix']].filter(Boolean).join(' '))
  return [...new Set(names)].toSorted()
}

/** The queries of the dashboard that find nothing in all that has happened, or times that nothing took. */
async function wrongQueries(): Promise<string[]> {
  const { panels } = JSON.parse(await readFile('examples/prometheus/dashboard.json', 'utf8')) as {
    panels: { title: string; targets: { expr: string }[] }[]
  }
  const wrong: string[] = []
  for (const { title, targets } of panels) {
    for (const { expr } of targets) {
      const query = expr.replaceAll('$prefix', '.*').replaceAll('$__rate_interval', '6s')
      const end = Date.now() / 1000
      const asked = new URLSearchParams({ query, start: `${end - 90}`, end: `${end}`, step: '1' })
      const answer = await fetch(`http://127.0.0.1:${PORT}/api/v1/query_range?${asked}`)
      const { data, error } = (await answer.json()) as {
        data?: { result: { values: [number, string][] }[] }
        error?: string
      }
      const values = data?.result.flatMap(({ values }) => values.map(([, value]) => Number(value)))
      const isTooLong = title.startsWith('Time of a statement') && values?.some((value) => value > 1)
      if (isTooLong || !values?.some((value) => value > 0)) wrong.push(`${title}: ${error ?? expr}`)
    }
  }
  return wrong
}

function startPrometheus(): ChildProcess {
  const options = [
    `--config.file=${home}/prometheus.yml`,
    `--storage.tsdb.path=${home}/data`,
    `--web.listen-address=127.0.0.1:${PORT}`,
  ]
  return spawn(process.env['PROMETHEUS'] ?? 'prometheus', options, { stdio: 'ignore' })
}

const prometheus = startPrometheus()
let failed = 0
try {
  await sleep(3000)
  for (const { name, alerts, run } of situations) {
    const end = Date.now() + 14_000
    while (Date.now() < end) {
      void run()?.catch(() => {})
      await sleep(100)
    }
    const found = await firing()
    const isRight = JSON.stringify(found) === JSON.stringify(alerts.toSorted())
    if (!isRight) failed++
    console.log(`${isRight ? 'right' : 'WRONG'}  ${name}: ${found.join(', ') || 'none'}`)
    isAway = false
  }
  const wrong = await wrongQueries()
  failed += wrong.length
  console.log(`${wrong.length === 0 ? 'right' : 'WRONG'}  wrong queries: ${wrong.join('; ') || 'none'}`)
} finally {
  prometheus.kill()
  await exporter.shutdown()
  await rm(home, { recursive: true, force: true })
}
process.exit(failed)
