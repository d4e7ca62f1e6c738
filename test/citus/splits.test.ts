import { describe, expect, test } from 'vitest'
import { limitAll, Ratelimit, RatelimitError } from '../../src/index.ts'
import { closePeriods } from '../../src/quota/index.ts'
import { CITUS_URL, type Laid, useLayout } from './layout.ts'

// A shard is split after the limiter has read where the shards are.

const NOW = new Date('2026-03-10T12:00:00Z')
const LATER = new Date('2026-06-10T12:00:00Z')

interface Split {
  readonly laid: Laid
  /** Two keys that were on one shard, and are on two after the split. */
  readonly keys: readonly [string, string]
  split(): Promise<void>
}

describe.skipIf(!CITUS_URL)('needs CITUS_URL: after a shard is split', () => {
  const limiter = Ratelimit.fixedWindow(10, '1h')

  const quotaOf = ({ laid }: Split, at = NOW) =>
    new Ratelimit({
      ...{ db: laid.at(), tables: laid.tables, use: laid.use, limiter, prefix: 'quota' },
      ...{ durable: true, clock: () => at, cleanupProbability: 0 },
    })
  const listOf = (quota: Ratelimit, { keys }: Split) => keys.map((key) => ({ ratelimit: quota, key }))

  describe('limitAll', () => {
    const use = useSplit()
    test('goes on', async () => {
      const made = await use()
      const quota = quotaOf(made)
      const charge = async () => (await limitAll(listOf(quota, made))).success
      expect(await charge()).toBe(true)
      await made.split()
      expect([await charge(), await charge()]).toEqual([true, true])
      expect((await quota.getRemainingAll(made.keys)).map(({ used }) => used)).toEqual([3, 3])
    })
  })

  describe('limitAll in a transaction', () => {
    const use = useSplit()
    test('goes on', async () => {
      const made = await use()
      const quota = quotaOf(made)
      const charge = () =>
        made.laid.at().transaction(async (tx) => (await limitAll(listOf(quota, made), { tx })).success)
      expect(await charge()).toBe(true)
      await made.split()
      expect([await charge(), await charge()]).toEqual([true, true])
      expect((await quota.getRemainingAll(made.keys)).map(({ used }) => used)).toEqual([3, 3])
    })
  })

  describe('cleanup', () => {
    const use = useSplit()
    test('goes on', async () => {
      const made = await use()
      const quota = quotaOf(made)
      await Promise.all(made.keys.map((key) => quota.limit(key)))
      await made.split()
      expect(await quotaOf(made, LATER).cleanup()).toBe(2)
    })
  })

  describe('closePeriods', () => {
    const use = useSplit()
    test('fails once, and removes nothing', async () => {
      const made = await use()
      const { laid } = made
      const quota = quotaOf(made)
      await Promise.all(made.keys.map((key) => quota.limit(key)))
      const later = quotaOf(made, LATER)
      const close = () => laid.at().transaction(async (tx) => (await closePeriods(later, { tx })).length)
      await made.split()
      expect(await close().catch(stateOf)).toBe('0A000')
      expect(await close()).toBe(2)
    })
  })
})

function stateOf(error: unknown): string | undefined {
  return error instanceof RatelimitError ? error.sqlState : undefined
}

/** Two shards, and two keys of one of them. */
function useSplit(): () => Promise<Split> {
  const laid = useLayout(2)
  const table = `'${laid.name}.rate_limit_durable'`
  return async () => {
    const found = await laid.rows(
      `select key, worker_hash(key) as hash, get_shard_id_for_distribution_column(${table}, key) as shard
        from unnest(array['a', 'b', 'c']) as key order by shard, hash`,
    )
    const place = found[0]?.['shard'] === found[1]?.['shard'] ? 0 : 1
    const [first, second] = [found[place], found[place + 1]]
    return {
      laid,
      keys: [String(first?.['key']), String(second?.['key'])],
      async split() {
        const { shard, hash } = first as Record<string, unknown>
        // The half with the second key goes to another worker.
        await laid.rows(
          `select citus_split_shard_by_split_points(${shard}, array['${hash}'], array[own.nodeid, other.nodeid],
              'block_writes')
            from pg_dist_placement join pg_dist_node own using (groupid)
              join pg_dist_node other on other.shouldhaveshards and other.nodeid <> own.nodeid
            where shardid = ${shard} limit 1`,
        )
      },
    }
  }
}
