import { type Database, limitAll, Ratelimit, RatelimitError } from '../../../src/index.ts'
import { EVENTS, PREFIX, sharesOf, TOKENS, type Told } from './events.ts'
import { below, db, did, random, recorder } from './kit.ts'
import { transaction, Undone } from './several.ts'

// Events that other processes charge too.

export const told: Told = { charged: [], repeated: [] }

const ratelimit = new Ratelimit({ db, limiter: Ratelimit.fixedWindow(TOKENS, '365d'), prefix: PREFIX })

/** Charges an event until it is known whether it was charged. */
export async function event(): Promise<void> {
  const chosen = below(EVENTS)
  const requests = sharesOf(chosen).map((share) => ({ ratelimit, ...share }))
  const once = { id: String(chosen), for: '1d' } as const
  const charge = (tx?: Database) => limitAll(requests, { tx, once })
  for (let tries = 0; tries < 20; tries++) {
    did.calls++
    try {
      const answer = random() < 0.2 ? await inTransaction(charge) : await charge()
      if (answer.success) told[answer.repeated ? 'repeated' : 'charged'].push(chosen)
      return
    } catch (error) {
      if (error instanceof RatelimitError && error.code.startsWith('INVALID_')) throw error
      if (error instanceof RatelimitError) recorder.note(error)
    }
  }
}

async function inTransaction<T>(work: (tx: Database) => Promise<T>): Promise<T> {
  let done: readonly T[] = []
  await transaction(async (tx) => {
    done = [await work(tx)]
    if (random() < 0.3) throw new Undone()
  })
  return done[0] as T
}
