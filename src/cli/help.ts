export const HELP = `Usage: drizzle-ratelimit <command> [options]

init                 Add the tables to your Drizzle schema, and write both migrations: what \`drizzle-kit generate\`
                     and \`drizzle-ratelimit storage\` do. Run it in the folder of your drizzle.config, and then
                     \`drizzle-kit migrate\`. A second time it changes nothing. It has the options of \`storage\`,
                     but for --citus, and chooses names that \`schemaFilter\` and \`tablesFilter\` let pass.
  --dry-run          Only print what it would do.

storage              Write a migration into the migrations folder of your drizzle-kit. It makes the ephemeral
                     table UNLOGGED and sets the storage parameters of both tables. Run it in the folder of
                     your drizzle.config, after \`drizzle-kit generate\` and before \`drizzle-kit migrate\`.
  --config <file>    drizzle-kit's configuration. Default: drizzle.config.ts, .js, .json or .mjs.
  --name <name>      The migration's name. Default: rate_limit_storage.
  --citus            Also distribute both tables by key, for limiters with \`citus()\`.

check [<url>]        Compare the tables in a database with the expected ones. The default of the URL is
                     DATABASE_URL. Needs \`pg\` or \`postgres\`. If the tables have other names, it takes those of
                     the Drizzle schema in your drizzle.config.
  --fix              Print the migration that removes the differences.
  --json             Print { tables, differences, notes }.
  --limits <module>  The module of \`top\`: also say which prefixes have live rows in the other table.

top [<url>]          Show the limits and the keys that are denied most and use most, again and again in a terminal:
                     q ends it, the arrows move, and / searches. Elsewhere it prints once.
  --limits <module>  A module. Its default export has your Ratelimit, Quota or Credits by any names, also as
                     \`{ ratelimit, limiterOf }\`, and by prefixes objects with \`limiter\` or \`limiterOf\`, and
                     \`durable\`. TypeScript is read by the \`tsx\` of the project, or by Node.
  --prefix <name>    Only this prefix. Can be repeated. Without --limits, only denials are shown.
  --top <number>     How many keys. Default: 10.
  --every <time>     Default: 2s.
  --since <time>     From when on denials count. Default: 1h.
  --once             Print once.
  --json             Print once, as JSON.

Options of all commands, the last one not of \`top\`; the first three are for tables that rateLimitTables(...) has declared:
  --schema <name>    Their Postgres schema. Default: public.
  --ephemeral <name> Default: rate_limit_ephemeral.
  --durable <name>   Default: rate_limit_durable.
  --logged           The ephemeral table is logged: for servers that empty UNLOGGED tables when they stop.

--help, --version

Exit code: 0 success, 1 differences of \`check\`, 2 failure. Notes of \`check\` are no differences.`
