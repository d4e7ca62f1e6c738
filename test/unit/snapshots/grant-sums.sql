-- $1: prefix
-- $2: key
select
  pg_catalog.encode (pg_catalog.float8send ("now"), 'hex') as "now",
  pg_catalog.encode (pg_catalog.float8send ("granted"), 'hex') as "granted",
  pg_catalog.encode (pg_catalog.float8send ("used"), 'hex') as "used"
from
  (
    select
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
          and "rate_limit_ephemeral"."key" between $2::text || '/debt' and $2::text || '/grant/' || 'z'
          and (
            (
              "rate_limit_ephemeral"."key" = $2::text || '/debt'
              and (
                "rate_limit_ephemeral"."count" is not null
                and "rate_limit_ephemeral"."prev_count" is not null
                and "rate_limit_ephemeral"."window_start" is null
                and "rate_limit_ephemeral"."tokens" is not null
                and "rate_limit_ephemeral"."last_refill" is not null
              )
            )
            or (
              starts_with("rate_limit_ephemeral"."key", $2::text || '/grant/')
              and strpos(substr("rate_limit_ephemeral"."key", length($2::text || '/grant/') + 1), '/') = 0
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
