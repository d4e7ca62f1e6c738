import type { SQL } from 'drizzle-orm'
import { PgDialect, type PgPolicy } from 'drizzle-orm/pg-core'
import { quote, textLiteral } from './table-name.ts'

/** Switches row level security on. */
export function secure(quoted: string): string {
  return `ALTER TABLE ${quoted} ENABLE ROW LEVEL SECURITY`
}

/** Creates a policy of a table, unless there is one of its name. */
export function createPolicy(quoted: string, policy: PgPolicy): string {
  const { name, as, for: command, to, using, withCheck } = policy
  const parts = [
    `CREATE POLICY ${quote(name)} ON ${quoted}`,
    ...(as ? [`AS ${as}`] : []),
    ...(command ? [`FOR ${command}`] : []),
    ...(to ? [`TO ${rolesIn(to).join(', ')}`] : []),
    ...(using ? [`USING (${conditionText(using)})`] : []),
    ...(withCheck ? [`WITH CHECK (${conditionText(withCheck)})`] : []),
  ]
  const there = `SELECT FROM pg_policy WHERE polrelid = ${textLiteral(quoted)}::regclass AND polname = ${textLiteral(name)}`
  return `DO ${textLiteral(`BEGIN IF NOT EXISTS (${there}) THEN ${parts.join(' ')}; END IF; END`)}`
}

/** Words of SQL, which are no names of roles. */
const WORDS = ['public', 'current_role', 'current_user', 'session_user']

function rolesIn(to: NonNullable<PgPolicy['to']>): string[] {
  if (Array.isArray(to)) return to.flatMap(rolesIn)
  if (typeof to !== 'string') return [quote(to.name)]
  return [WORDS.includes(to) ? to : quote(to)]
}

function conditionText(condition: SQL): string {
  return new PgDialect().sqlToQuery(condition.inlineParams()).sql
}
