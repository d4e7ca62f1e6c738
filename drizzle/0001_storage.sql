-- Drizzle's schema cannot say these things. drizzle-kit leaves them as they are.
-- The rows of an UNLOGGED table never reach the WAL, so checks are faster. A crash empties the table.
-- Each page has room for the new versions of its rows, so updates stay within the page (HOT).
-- Autovacuum runs more often, because the rows change all day.
-- Without statistics about prefixes, the planner finds a key by the primary key. With them, it takes a prefix
-- for rare if the prefix was rare when they were made, and then reads all keys of the prefix.
ALTER TABLE "rate_limit_ephemeral" SET UNLOGGED;
--> statement-breakpoint
ALTER TABLE "rate_limit_ephemeral" SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_analyze_scale_factor = 0.05);
--> statement-breakpoint
ALTER TABLE "rate_limit_ephemeral" ALTER COLUMN "prefix" SET STATISTICS 0;
--> statement-breakpoint
ALTER TABLE "rate_limit_durable" SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_analyze_scale_factor = 0.05);
--> statement-breakpoint
ALTER TABLE "rate_limit_durable" ALTER COLUMN "prefix" SET STATISTICS 0;
