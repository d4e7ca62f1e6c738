-- $1: 0.prefix
-- $2: 0.key
-- $3: 1.prefix
-- $4: 1.key
with
  "ratelimit_setting" as (
    select
      set_config(
        'synchronous_commit',
        case current_setting('synchronous_commit')
          when 'off' then 'on'
          else current_setting('synchronous_commit')
        end,
        true
      ) as "setting_0"
  ),
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
    cross join "ratelimit_setting"
    on conflict ("prefix", "key") do update
    set
      "prefix" = excluded.prefix
    where
      false
    returning
      "key"
  ),
  "ratelimit_made_1" as (
    insert into
      "rate_limit_durable" ("prefix", "key", "count", "prev_count", "window_start", "tokens", "last_refill", "expires_at")
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
              $3::text::text[]
          )
        ),
        pg_catalog.unnest (
          (
            select
              $4::text::text[]
          )
        )
      ) with ordinality as
    call ("prefix", "key", "place")
    where
      (
        select
          count(*)
        from
          "ratelimit_made_0"
      ) >= 0
    on conflict ("prefix", "key") do update
    set
      "prefix" = excluded.prefix
    where
      false
    returning
      "key"
  )
select
  count(*) as made
from
  "ratelimit_made_1"
