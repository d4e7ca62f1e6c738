import { reset } from '../kernel/engine/maintenance.ts'
import { isPrepaid } from '../kernel/options/validate.ts'
import { type Act, actsIn } from '../shared/shown.ts'
import { calledByPlan, type KeyRows } from './keys.ts'

// What can be done with a key of any limiter. What objects offer is in `ShownParts`.

/** Resets, where the limit has them, and what the limit or the gate offers. */
export async function actsOf(rows: KeyRows): Promise<readonly Act[]> {
  const { checker } = rows.handle
  const { limiter, gate } = checker.terms
  const whole: Act = {
    name: 'reset',
    needs: 'reset',
    label: 'Reset',
    about: 'Forget what was used: the whole limit again.',
    fields: [],
    run: async (key) => {
      const { call } = await calledByPlan(rows, key)
      await reset(checker, call, undefined)
      return { change: 'It has its whole limit again.' }
    },
  }
  const own = await actsIn(gate ?? limiter)?.(checker, (key) => calledByPlan(rows, key))
  // A reset would give back used credits, and forget how often a lockout has blocked.
  return [...(own ?? []), ...(isPrepaid(limiter) || actsIn(limiter) ? [] : [whole])]
}
