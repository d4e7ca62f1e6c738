import { eq } from 'drizzle-orm'
import { expect, vi } from 'vitest'
import { type Ratelimit, rateLimitEphemeral } from '../../../src/index.ts'
import type { TestDatabase } from '../../support/databases.ts'
import { PATIENTLY } from '../../support/patience.ts'

/** Waits until one request is charged, and nothing is reserved any more. */
export async function untilOneCounts({ db }: TestDatabase, { prefix }: Ratelimit): Promise<void> {
  const { count: charged, prevCount: reserved } = rateLimitEphemeral
  const stored = async () =>
    db.select({ charged, reserved }).from(rateLimitEphemeral).where(eq(rateLimitEphemeral.prefix, prefix))
  await vi.waitFor(async () => expect(await stored()).toEqual([{ charged: 1, reserved: 0 }]), PATIENTLY)
}
