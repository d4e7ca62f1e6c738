import type { TableNames } from './tables.ts'

/** The tables that a schema is to declare. */
export interface Declared extends TableNames {
  /** Whether all names are those of the package. */
  readonly isShipped: boolean
  /** Whether the Postgres schema is to be declared too, so that drizzle-kit creates it. */
  readonly withSchema: boolean
}

/** What declares the tables at the end of a file with this text. */
export function declarationOf(declared: Declared, before: string): string {
  const isCommonJs = /\bexports\b|\brequire\(/.test(before) && !/^\s*(import|export)\b/m.test(before)
  return `${(isCommonJs ? commonJs : esModule)(declared, before).join('\n')}\n`
}

function esModule(declared: Declared, before: string): string[] {
  if (declared.isShipped) return [`export * from 'drizzle-ratelimit/schema'`]
  const { schema, withSchema } = declared
  const hasPgSchema = /\bpgSchema\b(?!\s+as\b)[^}]*\}\s*from\s*['"]drizzle-orm\/pg-core['"]/.test(before)
  const made = `pgSchema(${quoted(schema)})`
  return [
    ...(schema === 'public' || hasPgSchema ? [] : [`import { pgSchema } from 'drizzle-orm/pg-core'`]),
    `import { rateLimitTables } from 'drizzle-ratelimit/schema'`,
    '',
    ...(withSchema ? [`export const rateLimitSchema = ${made}`] : []),
    `export const rateLimits = ${declarationCall(declared, withSchema ? 'rateLimitSchema' : made)}`,
    'export const { ephemeral: rateLimitEphemeral, durable: rateLimitDurable } = rateLimits',
  ]
}

/** Each export by its name, because a loader of ES modules sees no other exports. */
function commonJs(declared: Declared): string[] {
  if (declared.isShipped) {
    return ['rateLimitEphemeral', 'rateLimitDurable'].map(
      (name) => `module.exports.${name} = require('drizzle-ratelimit/schema').${name}`,
    )
  }
  const { schema, withSchema } = declared
  const made = `require('drizzle-orm/pg-core').pgSchema(${quoted(schema)})`
  return [
    `const { rateLimitTables } = require('drizzle-ratelimit/schema')`,
    ...(withSchema ? [`module.exports.rateLimitSchema = ${made}`] : []),
    `module.exports.rateLimits = ${declarationCall(declared, withSchema ? 'module.exports.rateLimitSchema' : made)}`,
    'module.exports.rateLimitEphemeral = module.exports.rateLimits.ephemeral',
    'module.exports.rateLimitDurable = module.exports.rateLimits.durable',
  ]
}

function declarationCall({ schema, ephemeral, durable }: Declared, madeSchema: string): string {
  return [
    'rateLimitTables({',
    ...(schema === 'public' ? [] : [`  schema: ${madeSchema},`]),
    `  ephemeral: ${quoted(ephemeral)},`,
    `  durable: ${quoted(durable)},`,
    '})',
  ].join('\n')
}

function quoted(text: string): string {
  return `'${text.replaceAll(/['\\]/g, '\\$&')}'`
}
