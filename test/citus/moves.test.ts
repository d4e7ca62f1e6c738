import { describe, expect, test } from 'vitest'
import { limitAll, Ratelimit } from '../../src/index.ts'
import { CITUS_URL, CITUS_WORKERS, useLayout } from './layout.ts'

// Shards go to other workers while they are in use.

const servers = [undefined, ...CITUS_WORKERS]

describe.skipIf(!CITUS_URL || !CITUS_WORKERS[1])(
  'needs CITUS_URL and CITUS_WORKERS: shards that move',
  () => {
    const laid = useLayout(4)
    const { tables, use } = laid
    const databases = servers.map((url) => laid.at(url))
    const keys = Array.from({ length: 8 }, (_, i) => `key ${i}`)
    const table = `${laid.name}.rate_limit_durable`

    /** Moves each shard to the other worker. */
    async function moveAll(mode: string): Promise<void> {
      const shards = await laid.rows(
        `select shardid, own.nodeport as own, (select min(nodeport) from pg_dist_node other
          where other.groupid <> own.groupid and other.shouldhaveshards) as other
        from pg_dist_shard join pg_dist_placement using (shardid) join pg_dist_node own using (groupid)
        where logicalrelid = '${table}'::regclass`,
      )
      expect(shards).toHaveLength(4)
      for (const { shardid, own, other } of shards) {
        const nodes = [own, other].map((port) => `'127.0.0.1', ${port}`).join()
        await laid.rows(`select citus_move_shard_placement(${shardid}, ${nodes}, '${mode}')`)
      }
    }

    /** Checks by all servers for as long as the work takes. Returns how many passed, by key. */
    async function checksDuring(
      prefix: string,
      options: { readonly durable: boolean } | { readonly durable: true; readonly synchronousCommit: true },
      work: () => Promise<void>,
    ) {
      const limits = databases.map(
        (db) =>
          new Ratelimit({
            ...{ db, tables, use, prefix, ...options },
            // The clocks of the workers may differ by an hour.
            limiter: Ratelimit.fixedWindow(100_000, '1d'),
          }),
      )
      const passed = keys.map(() => 0)
      let isOver = false
      const call = async (number: number) => {
        const ratelimit = limits[number % limits.length] as Ratelimit
        for (let turn = number; !isOver; turn++) {
          // A list of two keys, or one key.
          const places = turn % 4 === 0 ? [turn % 8, (turn + 3) % 8] : [turn % 8]
          const requests = places.map((place) => ({ ratelimit, key: keys[place] as string }))
          const [first] = requests
          const { success } = await (requests.length > 1
            ? limitAll(requests)
            : ratelimit.limit(first?.key ?? ''))
          expect(success).toBe(true)
          for (const place of places) passed[place] = (passed[place] ?? 0) + 1
        }
      }
      const calls = Promise.all(Array.from({ length: 12 }, (_, i) => call(i)))
      try {
        await work()
      } finally {
        isOver = true
      }
      await calls
      const used = (await (limits[0] as Ratelimit).getRemainingAll(keys)).map((each) => each.used)
      return { passed, used }
    }

    test.each([
      ['the durable table', true],
      ['the ephemeral table', false],
    ])('%s: checks wait, each is counted, and none fails', async (name, durable) => {
      const moves = async () => {
        await moveAll('block_writes')
        await moveAll('block_writes')
      }
      const { passed, used } = await checksDuring(name, { durable }, moves)
      expect(used).toEqual(passed)
      expect(Math.min(...used)).toBeGreaterThan(0)
    })

    test('an UNLOGGED table moves with block_writes only, and so do the tables that are colocated with it', async () => {
      await expect(moveAll('force_logical')).rejects.toThrow('to publication')
    })

    test('the durable table on shards of its own moves without a block: each check is counted', async () => {
      await laid.rows(`select update_distributed_table_colocation('${table}', colocate_with => 'none')`)
      const moves = async () => {
        await moveAll('force_logical')
        await moveAll('force_logical')
      }
      const { passed, used } = await checksDuring(
        'logical',
        { durable: true, synchronousCommit: true },
        moves,
      )
      expect(used).toEqual(passed)
      expect(Math.min(...used)).toBeGreaterThan(0)
    })
  },
)
