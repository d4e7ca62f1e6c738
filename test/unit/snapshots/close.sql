-- $1: prefix
-- $2: key
-- $3: start
with
  "ratelimit_ended" as (
    select
      home,
      found
    from
      rows
    from
      (
        pg_catalog.unnest (
          (
            select
              $2::text::text[]
          )
        ),
        pg_catalog.unnest (
          (
            select
              $3::text::float8[]
          )
        )
      ) with ordinality as
    call ("key", "start", "place")
    cross join lateral (
      select
        "rate_limit_ephemeral".tableoid as "home",
        "rate_limit_ephemeral".ctid as "found"
      from
        "rate_limit_ephemeral"
      where
        (
          "rate_limit_ephemeral"."prefix" = $1::text
          and "rate_limit_ephemeral"."key" = call.key
          and round(date_part('epoch', "rate_limit_ephemeral"."window_start") * 1000::float8) = call.start
          and (
            "rate_limit_ephemeral".tableoid = '"rate_limit_ephemeral"'::regclass::oid
            or pg_catalog.pg_partition_root ('"rate_limit_ephemeral"'::regclass) is not null
            or pg_catalog.current_setting ('citus.shard_count', true) is not null
          )
        )
      for update
        skip locked
    ) as stored
  ),
  "ratelimit_closed" as (
    delete from "rate_limit_ephemeral"
    where
      "rate_limit_ephemeral".ctid = any (
        array(
          select
            found
          from
            "ratelimit_ended"
        )
      )
      and (
        "rate_limit_ephemeral".tableoid = '"rate_limit_ephemeral"'::regclass::oid
        or ("rate_limit_ephemeral".tableoid, "rate_limit_ephemeral".ctid) in (
          select
            home,
            found
          from
            "ratelimit_ended"
        )
      )
    returning
      "key",
      "count",
      "prev_count",
      "window_start",
      "tokens",
      "last_refill"
  )
select
  "key",
  pg_catalog.encode (
    pg_catalog.float8send (
      (
        case
          when "count" < 0 then 0
          else "count"
        end
      )::float8
    ),
    'hex'
  ) as "count",
  pg_catalog.encode (
    pg_catalog.float8send (
      (
        case
          when "prev_count" < 0 then 0
          else "prev_count"
        end
      )::float8
    ),
    'hex'
  ) as "prev_count",
  pg_catalog.encode (pg_catalog.float8send (round(date_part('epoch', "window_start") * 1000::float8)), 'hex') as "window_start",
  pg_catalog.encode (pg_catalog.float8send ("tokens"), 'hex') as "tokens",
  pg_catalog.encode (pg_catalog.float8send (round(date_part('epoch', "last_refill") * 1000::float8)), 'hex') as "last_refill"
from
  "ratelimit_closed"
