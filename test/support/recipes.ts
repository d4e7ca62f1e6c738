import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { join, resolve } from 'node:path'

const CACHE = 'node_modules/.cache'
const APP = resolve('test/support/docs-app.ts')

/** The pages on quotas and costs, and all recipes, as one text. */
export async function quotaPages(): Promise<string> {
  const names = ['quotas', 'costs', 'quota-recipes', 'cost-recipes', 'billing-recipes']
  return (await Promise.all(names.map((name) => readFile(`docs/${name}.md`, 'utf8')))).join('\n')
}

/**
 * What a recipe of these pages, or of others, exports, as it stands there, on the server at `url`. Each call is
 * a process of its own: it has its own limiters and its own pool.
 */
export async function recipeOn<Exports>(
  url: string,
  heading: string,
  pages: () => Promise<string> = quotaPages,
): Promise<Exports & { readonly end: () => Promise<void> }> {
  const [, block] = (await pages()).split(`\n## ${heading}\n`)[1]?.match(/^```ts\n([\s\S]*?)^```/m) ?? []
  if (!block) throw new Error(`There is no recipe "${heading}".`)
  await mkdir(CACHE, { recursive: true })
  const folder = await mkdtemp(resolve(CACHE, 'recipe-'))
  await writeFile(
    join(folder, 'app.ts'),
    `import { drizzle } from 'drizzle-orm/node-postgres'
    import pg from 'pg'
    export * from '${APP}'
    const client = new pg.Pool({ connectionString: '${url}', max: 8 })
    // Connections that have just been closed may hear that their database is dropped.
    client.on('error', () => {})
    export const db = drizzle({ client })`,
  )
  await writeFile(join(folder, 'recipe.ts'), block)
  const [recipe, { db }] = await Promise.all(
    ['recipe.ts', 'app.ts'].map((file) => import(join(folder, file))),
  )
  await rm(folder, { recursive: true })
  return { ...recipe, end: () => db.$client.end() }
}
