-- $1: prefix
-- $2: clock
with
  "ratelimit_expired" as (
    select
      "rate_limit_ephemeral".tableoid as "home",
      "rate_limit_ephemeral".ctid as "found"
    from
      "rate_limit_ephemeral"
    where
      (
        "rate_limit_ephemeral"."prefix" = $1::text
        and (
          "rate_limit_ephemeral".tableoid = '"rate_limit_ephemeral"'::regclass::oid
          or pg_catalog.pg_partition_root ('"rate_limit_ephemeral"'::regclass) is not null
          or pg_catalog.current_setting ('citus.shard_count', true) is not null
        )
        and "rate_limit_ephemeral"."expires_at" <= coalesce(to_timestamp($2::float8 / 1000::float8), now())
      )
    order by
      "rate_limit_ephemeral"."expires_at" asc
    limit
      100
    for update
      skip locked
  ),
  "ratelimit_deleted" as (
    delete from "rate_limit_ephemeral"
    where
      "rate_limit_ephemeral".ctid = any (
        array(
          select
            found
          from
            "ratelimit_expired"
        )
      )
      and (
        "rate_limit_ephemeral".tableoid = '"rate_limit_ephemeral"'::regclass::oid
        or ("rate_limit_ephemeral".tableoid, "rate_limit_ephemeral".ctid) in (
          select
            home,
            found
          from
            "ratelimit_expired"
        )
      )
    returning
      "key"
  )
select
  count(*) as deleted
from
  ratelimit_deleted
