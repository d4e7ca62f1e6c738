// An order, its stock and the tenant's quota are in one transaction. If the order fails, the quota is given
// back.
import { PGlite } from '@electric-sql/pglite'
import { and, eq, gt, sql } from 'drizzle-orm'
import { integer, pgTable, serial, text } from 'drizzle-orm/pg-core'
import { drizzle } from 'drizzle-orm/pglite'
import { Ratelimit, tableSql } from 'drizzle-ratelimit'

const stock = pgTable('stock', { item: text().primaryKey(), left: integer().notNull() })
const orders = pgTable('orders', {
  id: serial().primaryKey(),
  tenant: text().notNull(),
  item: text().notNull(),
})
class OutOfStock extends Error {}

const client = await PGlite.create()
for (const statement of tableSql()) await client.exec(statement)
await client.exec(`
  create table stock (item text primary key, "left" integer not null);
  create table orders (id serial primary key, tenant text not null, item text not null);
  insert into stock values ('lamp', 2);`)
const db = drizzle({ client })

const perDay = new Ratelimit({ db, limiter: Ratelimit.fixedWindow(3, '1d'), prefix: 'orders', durable: true })

async function order(tenant: string, item: string): Promise<string> {
  try {
    return await db.transaction(async (tx) => {
      const quota = await perDay.limit(tenant, { tx })
      if (!quota.success)
        return `refused: ${tenant} may order again in ${Math.ceil(quota.retryAfter / 3_600_000)} h`
      const [made] = await tx.insert(orders).values({ tenant, item }).returning()
      const inStock = and(eq(stock.item, item), gt(stock.left, 0))
      const taken = await tx
        .update(stock)
        .set({ left: sql`${stock.left} - 1` })
        .where(inStock)
        .returning()
      if (taken.length === 0) throw new OutOfStock()
      return `ordered: number ${made?.id}, ${quota.remaining} more today`
    })
  } catch (error) {
    if (!(error instanceof OutOfStock)) throw error
    return 'failed: out of stock, and all of it is undone'
  }
}

async function show(what: string): Promise<void> {
  const { remaining } = await perDay.getRemaining('tenant:1')
  const [lamps] = await db.select().from(stock)
  console.log(
    `${what.padEnd(48)} quota ${remaining}, stock ${lamps?.left}, orders ${await db.$count(orders)}`,
  )
}

await show('at first')
await show(await order('tenant:1', 'lamp'))
await show(await order('tenant:1', 'lamp'))
await show(await order('tenant:1', 'lamp'))
await db.update(stock).set({ left: 10 })
await show('ten more lamps arrive')
await show(await order('tenant:1', 'lamp'))
await show(await order('tenant:1', 'lamp'))
await client.close()
