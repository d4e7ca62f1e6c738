-- What Drizzle's schema cannot say; drizzle-kit leaves it alone from here on.
-- A crash empties the ephemeral table, and its rows never reach the WAL.
ALTER TABLE "rate_limit_ephemeral" SET UNLOGGED;
--> statement-breakpoint
-- Room in each page for updated rows (HOT), and a vacuum that keeps up with rows that change all day.
ALTER TABLE "rate_limit_ephemeral" SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_analyze_scale_factor = 0.05);
--> statement-breakpoint
ALTER TABLE "rate_limit_durable" SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_analyze_scale_factor = 0.05);
--> statement-breakpoint
-- With statistics, the planner takes a prefix that was rare when they were made for rare ever after: it then reads all keys of the
-- prefix by the index that cleanup uses, instead of one by the primary key.
ALTER TABLE "rate_limit_ephemeral" ALTER COLUMN "prefix" SET STATISTICS 0;
--> statement-breakpoint
ALTER TABLE "rate_limit_durable" ALTER COLUMN "prefix" SET STATISTICS 0;
