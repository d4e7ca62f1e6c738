-- $1: prefix
-- $2: key
select
  "place",
  pg_catalog.encode (pg_catalog.float8send ("now"), 'hex') as "now",
  pg_catalog.encode (pg_catalog.float8send ("granted"), 'hex') as "granted",
  pg_catalog.encode (pg_catalog.float8send ("used"), 'hex') as "used"
from
  (
    select
      "place",
      "now",
      "stored"."granted",
      "stored"."used"
    from
      (
        select
          floor(date_part('epoch', clock_timestamp()) * 1000::float8) as now
        offset
          0
      ) as timed
      cross join rows
    from
      (
        pg_catalog.unnest (
          (
            select
              $2::text::text[]
          )
        )
      ) with ordinality as
    call ("key", "place")
    left join lateral (
      select
        coalesce(
          sum(
            case
              when "rate_limit_ephemeral"."window_start" is null then 0::float8
              else (
                case
                  when "rate_limit_ephemeral"."prev_count" < 0 then 0
                  else "rate_limit_ephemeral"."prev_count"
                end
              )::float8
            end
          ),
          0::float8
        ) as "granted",
        coalesce(
          sum(
            (
              case
                when "rate_limit_ephemeral"."count" < 0 then 0
                else "rate_limit_ephemeral"."count"
              end
            )::float8
          ),
          0::float8
        ) as "used"
      from
        "rate_limit_ephemeral"
      where
        "rate_limit_ephemeral"."prefix" = $1::text
        and "rate_limit_ephemeral"."key" between call.key || '/debt' and call.key || '/grant/' || 'z'
        and (
          (
            "rate_limit_ephemeral"."key" = call.key || '/debt'
            and (
              "rate_limit_ephemeral"."count" is not null
              and "rate_limit_ephemeral"."prev_count" is not null
              and "rate_limit_ephemeral"."window_start" is null
              and "rate_limit_ephemeral"."tokens" is not null
              and "rate_limit_ephemeral"."last_refill" is not null
            )
          )
          or (
            starts_with("rate_limit_ephemeral"."key", call.key || '/grant/')
            and strpos(substr("rate_limit_ephemeral"."key", length(call.key || '/grant/') + 1), '/') = 0
            and (
              "rate_limit_ephemeral"."count" is not null
              and "rate_limit_ephemeral"."prev_count" is not null
              and "rate_limit_ephemeral"."window_start" is not null
              and "rate_limit_ephemeral"."tokens" is not null
              and "rate_limit_ephemeral"."last_refill" is not null
            )
            and round(date_part('epoch', "rate_limit_ephemeral"."window_start") * 1000::float8) > "timed"."now"
          )
        )
      offset
        0
    ) as stored on true
  ) as seen
