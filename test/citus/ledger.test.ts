import { sql } from 'drizzle-orm'
import { type Entry, ledger } from 'drizzle-ratelimit/ledger'
import { describe, expect, test } from 'vitest'
import { limitAll, Ratelimit } from '../../src/index.ts'
import { Quota } from '../../src/quota/index.ts'
import { CITUS_URL, CITUS_WORKERS, useLayout } from './layout.ts'

// The entries that commit are the charges that commit, wherever their rows are.

const servers = [undefined, ...CITUS_WORKERS]
const KEYS = ['k0', 'k1', 'k2', 'k3', 'k4', 'k5']
const UNDO = new Error('undo')

type Executing = { execute(query: unknown): Promise<unknown> }

describe.skipIf(!CITUS_URL)('needs CITUS_URL: a ledger', () => {
  const laid = useLayout(8)
  const { name, rows, tables, use } = laid

  async function quotasOf(prefix: string, tokens: number, write: (entries: readonly Entry[]) => void) {
    await rows(`create table ${name}.${prefix} (key text not null, units float8 not null)`)
    await rows(
      `select create_distributed_table('${name}.${prefix}', 'key', colocate_with => '${name}.rate_limit_durable')`,
    )
    const table = sql.raw(`${name}.${prefix}`)
    const writing = ledger(async (tx, entries) => {
      for (const { key, units } of entries)
        await (tx as unknown as Executing).execute(sql`insert into ${table} values (${key}, ${units})`)
      write(entries)
    })
    const limiter = Ratelimit.fixedWindow(tokens, '1d')
    return servers.map((url) => {
      const db = laid.at(url)
      const own = { db, tables, prefix, limiter, timeout: '60s', use: [...use, writing] } as const
      return { db, quota: new Quota(own) }
    })
  }

  async function expectBooks(prefix: string, quota: Quota): Promise<number> {
    const written = await rows(`select key, sum(units)::float8 as units from ${name}.${prefix} group by key`)
    const used = await quota.getRemainingAll(KEYS)
    for (const [place, key] of KEYS.entries())
      expect([key, written.find((row) => row['key'] === key)?.['units'] ?? 0]).toEqual([
        key,
        used[place]?.used,
      ])
    return used.reduce((sum, each) => sum + each.used, 0)
  }

  test('calls of three servers at once, with lists, ids, estimates and rollbacks', async () => {
    const all = await quotasOf('busy', 60, () => {})
    await Promise.all(
      Array.from({ length: 24 }, async (_, caller) => {
        const { db, quota } = all[caller % all.length] as (typeof all)[number]
        for (let i = 0; i < 10; i++) {
          const place = (caller * 7 + i * 5) % KEYS.length
          const [key, next] = [KEYS[place] as string, KEYS[(place + 1) % KEYS.length] as string]
          const way = (caller + i) % 5
          if (way === 0) await quota.limit(key, { rate: 1 + (i % 3) })
          else if (way === 1) await limitAll([key, next].map((each) => ({ ratelimit: quota, key: each })))
          else if (way === 2) await quota.limit(key, { once: { id: `event ${i}`, for: '1d' } })
          else if (way === 3) {
            const reserved = await quota.reserve(key, { rate: 3, id: `job ${caller} ${i}`, expires: '1h' })
            if (reserved.success) await reserved.commit(i % 5)
          } else {
            const joined = db.transaction(async (tx) => {
              await quota.limit(key, { rate: 2, tx })
              if (i % 2) throw UNDO
            })
            await joined.catch((error) => expect(error).toBe(UNDO))
          }
        }
      }),
    )
    expect(await expectBooks('busy', (all[0] as (typeof all)[number]).quota)).toBeGreaterThan(100)
  })

  test('if it throws, nothing is charged: one row, new and known, and rows of several servers', async () => {
    let fails = false
    const [one] = await quotasOf('failing', 60, () => {
      if (fails) throw UNDO
    })
    const quota = (one as NonNullable<typeof one>).quota
    const list = KEYS.map((key) => ({ ratelimit: quota, key }))
    const failed = { code: 'ENTRIES_FAILED', cause: UNDO }
    for (const round of [0, 1]) {
      fails = true
      await expect(quota.limit('k0')).rejects.toMatchObject(failed)
      await expect(limitAll(list)).rejects.toMatchObject(failed)
      expect(await expectBooks('failing', quota)).toBe(round * (KEYS.length + 1))
      fails = false
      await quota.limit('k0')
      expect(await limitAll(list)).toMatchObject({ success: true })
      expect(await expectBooks('failing', quota)).toBe((round + 1) * (KEYS.length + 1))
    }
  })
})
