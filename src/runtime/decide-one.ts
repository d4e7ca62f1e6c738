import { RatelimitError } from '../errors.ts'
import { type Asked, type Asking, applies, askOne, askToLook, askToMake } from './ask.ts'
import type { Decision } from './call.ts'

/** Each attempt can lose the race for a new row. After this many losses, something else is wrong. */
const MAX_ATTEMPTS = 50

/** Decides one request. If another transaction holds its row, it waits. */
export async function decideOne(asking: Asking, one: Asked): Promise<Decision> {
  let asks = asking
  for (let attempts = 0; attempts < MAX_ATTEMPTS; attempts++) {
    const decision = await askForOne(asks, one)
    if (decision && applies(one, decision)) return decision
    if (decision) asks = { ...asking, periodMs: decision.now }
  }
  throw new RatelimitError(
    'CONTENTION',
    `Others inserted and removed the row of a new key ${MAX_ATTEMPTS} times during the check. Nothing was charged for the key.`,
    { contended: true },
  )
}

async function askForOne(asking: Asking, one: Asked): Promise<Decision | undefined> {
  if (one.request.purpose === 'look') return (await askToLook(asking, [one]))[0]
  const [taken] = await askOne(asking, one, true)
  return taken ?? (await askToMake(asking, [one], true))[0]
}
