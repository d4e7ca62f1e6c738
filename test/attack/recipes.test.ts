import { afterAll, beforeAll, expect, test, vi } from 'vitest'
import type { Ratelimit } from '../../src/index.ts'
import { emptyDatabase, migrate, type TestDatabase } from '../support/databases.ts'
import * as app from '../support/docs-app.ts'
import { tell } from '../support/happened.ts'
import { recipeOn } from '../support/recipes.ts'

// Recipes of docs/quotas.md as they stand there, each in two processes at once.

let database: TestDatabase
const ends: (() => Promise<void>)[] = []
beforeAll(async () => {
  database = await emptyDatabase()
  await migrate(database)
  await database.script(app.TABLES_SQL)
})
afterAll(async () => {
  await Promise.all(ends.map((end) => end()))
  await database.close()
  await app.db.$client.close()
})

/** The recipe, in two processes. */
async function twoProcesses<Exports>(heading: string): Promise<[Exports, Exports]> {
  const both = await Promise.all([
    recipeOn<Exports>(database.url, heading),
    recipeOn<Exports>(database.url, heading),
  ])
  ends.push(...both.map(({ end }) => end))
  return both
}

test('estimates and known costs, from the month and the credits', async () => {
  const processes = await twoProcesses<{
    ask(org: string, prompt: string): Promise<void>
    month: Ratelimit
    credits: Ratelimit
  }>('An estimate, first from the month, then from the credits')
  const [{ month, credits }] = processes
  await credits.grant('org', 3000)

  // A prompt of 10 letters is estimated at 40. A failed completion is not stored, and its estimate stays.
  let paid = 0
  const thinking = vi.spyOn(app.llm, 'complete').mockImplementation(async () => {
    const tokens = Math.floor(Math.random() * 90)
    paid += tokens
    return { text: '', tokens }
  })
  const asking = async (call: number) => {
    const { ask } = processes[call % 2] as (typeof processes)[0]
    const error = await ask('org', 'x'.repeat(10)).catch((thrown: Error) => thrown)
    if (error && !(error instanceof app.QuotaExceeded)) throw error
    tell('estimates', error ? 'denied' : 'settled')
  }
  const spending = async (call: number) => {
    const { month: first, credits: second } = processes[call % 2] as (typeof processes)[0]
    const requests = [first, second].map((ratelimit) => ({ ratelimit, key: 'org' }))
    const { Ratelimit: Limiters } = await import('../../src/index.ts')
    const { success } = await Limiters.spend(requests, { rate: 7 })
    if (success) paid += 7
  }
  for (let wave = 0; wave < 6; wave++) {
    await Promise.all(
      Array.from({ length: 40 }, (_, call) => (call % 4 ? asking(call) : spending(call >> 2))),
    )
  }
  thinking.mockRestore()
  const [ofMonth, ofCredits] = [await month.getRemaining('org'), await credits.getRemaining('org')]
  expect(ofMonth.used).toBe(1000)
  expect(ofMonth.used + ofCredits.used).toBe(paid)
})
