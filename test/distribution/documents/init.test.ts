import { readFile } from 'node:fs/promises'
import { expect, test } from 'vitest'
import { RECOMMENDED_DB } from '../../../src/cli/recommended-db.ts'

test("README's db.ts is the one that `drizzle-ratelimit init` recommends", async () => {
  expect(await readFile('README.md', 'utf8')).toContain(`\`\`\`ts\n// db.ts\n${RECOMMENDED_DB}\`\`\`\n`)
})
