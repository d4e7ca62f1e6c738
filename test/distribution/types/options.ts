import type { NamesOf } from '../../../src/kernel/base/check-options.ts'

// The lists of options that exist are complete, or do not compile.

type Example = { readonly tx?: string } & ({ readonly limits: string } | { readonly limits?: never })

interface Without {
  readonly tx?: string | undefined
  readonly headers?: never
}

export const complete: NamesOf<Example> = { tx: true, limits: true }
export const without: NamesOf<Without> = { tx: true }

// @ts-expect-error An option is forgotten.
export const forgotten: NamesOf<Example> = { tx: true }
// @ts-expect-error No interface has it.
export const madeUp: NamesOf<Without> = { tx: true, trx: true }
// @ts-expect-error The interface forbids it.
export const forbidden: NamesOf<Without> = { tx: true, headers: true }
