-- $1: prefix
-- $2: key
with
  "ratelimit_call" as (
    select
      $2::text as key,
      hashtextextended ('"rate_limit_ephemeral"' || $1::text || ' ' || $2::text, 1::bigint) & ~ 4095::bigint as lock_name,
      floor(date_part('epoch', clock_timestamp()) * 1000::float8) as now
  ),
  "ratelimit_held" as (
    select
      held.*
    from
      "ratelimit_call" as
    call
    cross join lateral (
      select
        (objid::bigint & 4095::bigint)::integer as number,
        bool_or(pid is not distinct from pg_backend_pid()) as own
      from
        pg_catalog.pg_locks
      where
        locktype = 'advisory'
        and objsubid = 1
        and granted
        and database = (
          select
            oid
          from
            pg_catalog.pg_database
          where
            datname = current_database()
        )
        and (classid::bigint << 32 | objid::bigint) & ~ 4095::bigint = lock_name
        and objid::bigint & 4095::bigint > 0
      group by
        1
    ) as held
  ),
  "ratelimit_slots" as (
    select
      slot.*
    from
      "ratelimit_call" as
    call
    cross join lateral (
      select
        case
          when right("rate_limit_ephemeral"."key", 4) ~ '^[0-9]+$' then right("rate_limit_ephemeral"."key", 4)::integer
        end as number,
        case
          when (
            "rate_limit_ephemeral"."count" is not null
            and "rate_limit_ephemeral"."prev_count" is null
            and "rate_limit_ephemeral"."window_start" is null
            and "rate_limit_ephemeral"."tokens" is null
            and "rate_limit_ephemeral"."last_refill" is not null
          ) then round(date_part('epoch', "rate_limit_ephemeral"."last_refill") * 1000::float8)
          else 0::float8
        end as ends,
        (
          case
            when "rate_limit_ephemeral"."count" < 0 then 0
            else "rate_limit_ephemeral"."count"
          end
        )::float8 as count
      from
        "rate_limit_ephemeral"
      where
        "rate_limit_ephemeral"."prefix" = $1::text
        and "rate_limit_ephemeral"."key" between call.key || '#0000' and call.key || '#9999'
        and starts_with("rate_limit_ephemeral"."key", call.key || '#')
        and length("rate_limit_ephemeral"."key") = length(call.key) + 5
      offset
        0
    ) as slot
  )
select
  number,
  pg_catalog.encode (pg_catalog.float8send ("fence"), 'hex') as "fence",
  pg_catalog.encode (pg_catalog.float8send ("ends"), 'hex') as "ends"
from
  (
    select
      number,
      case
        when own is distinct from false then count
      end as fence,
      case
        when own is null then ends
      end as ends
    from
      ratelimit_slots
      full join ratelimit_held using (number)
      cross join "ratelimit_call"
    where
      number > 0
      and (
        own is not null
        or ends > now
      )
  ) as answered
order by
  number
