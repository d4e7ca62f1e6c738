import { readFile } from 'node:fs/promises'
import type { MeterProvider } from '@opentelemetry/api'
import { beforeAll, expect, test } from 'vitest'
import { instrument } from '../../../src/otel.ts'

// The dashboard and the alerts of examples/prometheus ask for what `instrument` publishes. `tools/alerts.ts`
// tries the alerts on a real Prometheus.

/** The names that Prometheus has for the metrics. Some exporters add the unit of a histogram. */
const published = new Set<string>()
let documented = ''

beforeAll(async () => {
  const inPrometheus = (name: string) => name.replaceAll('.', '_')
  const provider = {
    getMeter: () => ({
      createCounter: (name: string) => published.add(`${inPrometheus(name)}_total`),
      createHistogram: (name: string, { unit }: { unit: string }) => {
        const infix = unit === 's' ? '(_seconds)?' : ''
        for (const end of ['bucket', 'sum', 'count']) published.add(`${inPrometheus(name)}${infix}_${end}`)
      },
    }),
  }
  instrument({ meterProvider: provider as unknown as MeterProvider })()
  documented = await readFile('docs/observability.md', 'utf8')
})

async function expressionsIn(file: string): Promise<string[]> {
  const text = await readFile(file, 'utf8')
  if (!file.endsWith('.json'))
    return [...text.matchAll(/expr: (\|\n(?: {10,}.*\n)+|.*\n)/g)].map(([all]) => all)
  const { panels } = JSON.parse(text)
  return panels.flatMap(({ targets }: { targets: { expr: string }[] }) => targets.map(({ expr }) => expr))
}

test.each([
  ['examples/prometheus/alerts.yml', 5],
  ['examples/prometheus/dashboard.json', 9],
])('%s asks for what is published', async (file, count) => {
  const expressions = await expressionsIn(file)
  expect(expressions).toHaveLength(count)
  const labels = new Set([...documented.matchAll(/`((?:ratelimit|error)\.\w+)`/g)].map(([, name]) => name))
  for (const expression of expressions) {
    const metrics: string[] =
      expression.match(/\bratelimit_\w+(?:\(_seconds\)\?)?\w*_(?:total|bucket|sum|count)\b/g) ?? []
    expect(metrics, expression).not.toEqual([])
    expect(metrics.filter((name) => !published.has(name))).toEqual([])
    const others = expression.match(/\b(?:ratelimit|error)_\w+(?=[ ,)]|=~?")/g) ?? []
    const unknown = others.filter((name) => !labels.has(name.replace('_', '.')) && !metrics.includes(name))
    expect(unknown, expression).toEqual([])
  }
})

test('the docs name every metric', () => {
  const names = [...published].map((name) => name.replace(/(\(_seconds\)\?)?_(total|bucket|sum|count)$/, ''))
  const inDocs = [...documented.matchAll(/^\| `(ratelimit\.[\w.]+)`/gm)].map(([, name]) => name)
  expect(inDocs.map((name) => name?.replaceAll('.', '_')).toSorted()).toEqual([...new Set(names)].toSorted())
})
