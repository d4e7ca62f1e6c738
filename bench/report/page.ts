import { format, resolveConfig } from 'prettier'
import type { LoadResult } from '../loads/load.ts'
import type { Surroundings } from './json.ts'
import type { Judged } from './judge.ts'
import { type Grid, medians, targetsOf } from './table.ts'

/** The page with all figures of a whole run, in Markdown. */
export async function page(
  { date, commit, cpus, versions }: Surroundings,
  results: readonly LoadResult[],
  judged: readonly Judged[],
  path: URL,
): Promise<string> {
  const measured = results.filter((result) => result.measured.length > 0)
  const text = `# Results of the benchmark

\`npm run bench\` wrote this page on ${date.slice(0, 10)} at commit ${commit}, on a machine with ${cpus} CPUs. It had
Node ${versions['node']} and PostgreSQL ${versions['PostgreSQL']}. The figures are medians. Compare figures of one table only.
[Performance](../docs/performance.md) says what they mean.

## Aims

${markdown(targetsOf(judged))}

${measured.map((result) => `## ${titleOf(result)}\n\n${markdown(medians(result))}`).join('\n\n')}
`
  return format(text, { ...(await resolveConfig(path)), filepath: path.pathname })
}

function titleOf({ title }: LoadResult): string {
  return title.charAt(0).toUpperCase() + title.slice(1)
}

function markdown({ head, rows }: Grid): string {
  const aligned = head.map((_, place) => (place === 0 ? '---' : '--:'))
  return [head, aligned, ...rows].map((cells) => `| ${cells.join(' | ')} |`).join('\n')
}
