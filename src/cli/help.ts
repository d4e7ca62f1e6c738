export const HELP = `Usage: drizzle-ratelimit <command> [options]

storage              Write a migration into the migrations folder of your drizzle-kit. It makes the ephemeral
                     table UNLOGGED and sets the storage parameters of both tables. Run it in the folder of
                     your drizzle.config, after \`drizzle-kit generate\` and before \`drizzle-kit migrate\`.
  --config <file>    drizzle-kit's configuration. Default: drizzle.config.ts, .js or .json.
  --name <name>      The migration's name. Default: rate_limit_storage.

check [<url>]        Compare the tables in a database with the expected ones. The default of the URL is
                     DATABASE_URL. Needs \`pg\` or \`postgres\`.

Options of both commands; the first three are for tables that rateLimitTables(...) has declared:
  --schema <name>    Their Postgres schema. Default: public.
  --ephemeral <name> Default: rate_limit_ephemeral.
  --durable <name>   Default: rate_limit_durable.
  --logged           The ephemeral table is logged: for servers that empty UNLOGGED tables when they stop.

--help, --version

Exit code: 0 success, 1 differences, 2 failure.`
