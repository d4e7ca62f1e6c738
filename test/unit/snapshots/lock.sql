-- $1: 0.prefix
-- $2: 0.key
with
  "ratelimit_made_0" as (
    insert into
      "rate_limit_ephemeral" ("prefix", "key", "count", "prev_count", "window_start", "tokens", "last_refill", "expires_at")
    select
      call.prefix,
      call.key,
      null::bigint,
      null::bigint,
      null::timestamptz,
      null::float8,
      null::timestamptz,
      now()
    from
      rows
    from
      (
        pg_catalog.unnest (
          (
            select
              $1::text::text[]
          )
        ),
        pg_catalog.unnest (
          (
            select
              $2::text::text[]
          )
        )
      ) with ordinality as
    call ("prefix", "key", "place")
    on conflict ("prefix", "key") do update
    set
      "prefix" = excluded.prefix
    where
      false
    returning
      "key"
  )
select
  (
    select
      count(*)
    from
      "ratelimit_made_0"
  ) as made
