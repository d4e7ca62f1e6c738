import { format } from 'sql-formatter'
import type { Statement } from '../../src/kernel/database/statement.ts'

/** The statement as a person would write it, and the names of its parameters. */
export function printed({ sql, names }: Statement): string {
  const parameters = names.map((name, i) => `-- $${i + 1}: ${name}\n`).join('')
  return `${parameters}${format(sql, { language: 'postgresql', keywordCase: 'lower', expressionWidth: 100 })}\n`
}

/** The names of the parameters that the text uses, in the order of their numbers. */
export function usedNames({ sql, names }: Statement): (string | undefined)[] {
  const used = new Set([...sql.matchAll(/\$(\d+)/g)].map(([, number]) => Number(number)))
  return [...used].toSorted((one, other) => one - other).map((number) => names[number - 1])
}
