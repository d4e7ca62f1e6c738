CREATE TABLE "rate_limit_durable" (
	"prefix" text NOT NULL,
	"key" text NOT NULL,
	"count" bigint,
	"prev_count" bigint,
	"window_start" timestamp with time zone,
	"tokens" double precision,
	"last_refill" timestamp with time zone,
	"expires_at" timestamp with time zone NOT NULL,
	CONSTRAINT "rate_limit_durable_prefix_key_pk" PRIMARY KEY("prefix","key")
);
--> statement-breakpoint
CREATE TABLE "rate_limit_ephemeral" (
	"prefix" text NOT NULL,
	"key" text NOT NULL,
	"count" bigint,
	"prev_count" bigint,
	"window_start" timestamp with time zone,
	"tokens" double precision,
	"last_refill" timestamp with time zone,
	"expires_at" timestamp with time zone NOT NULL,
	CONSTRAINT "rate_limit_ephemeral_prefix_key_pk" PRIMARY KEY("prefix","key")
);
--> statement-breakpoint
CREATE INDEX "rate_limit_durable_prefix_expires_at_index" ON "rate_limit_durable" USING btree ("prefix","expires_at");--> statement-breakpoint
CREATE INDEX "rate_limit_ephemeral_prefix_expires_at_index" ON "rate_limit_ephemeral" USING btree ("prefix","expires_at");