-- $1: prefix
-- $2: key
-- $3: periodMs
-- $4: rate
-- $5: calls
-- $6: limit
-- $7: expiryGridMs
with
  "ratelimit_locked" as (
    select
      "count" as "count",
      case
        when (
          "rate_limit_ephemeral"."count" is not null
          and "rate_limit_ephemeral"."prev_count" is null
          and "rate_limit_ephemeral"."window_start" is not null
          and "rate_limit_ephemeral"."tokens" is null
          and "rate_limit_ephemeral"."last_refill" is null
        ) then "window_start"
      end as "window_start"
    from
      "rate_limit_ephemeral"
    where
      (
        "rate_limit_ephemeral"."prefix" = $1::text
        and "rate_limit_ephemeral"."key" = $2::text
      )
    for update
      skip locked
  ),
  "ratelimit_decided" as (
    select
      "ended",
      "now",
      "count",
      "window_start",
      "available",
      least(floor((available) / $4::float8), $5::float8) as "granted"
    from
      (
        select
          "ended",
          "now",
          "count",
          "window_start",
          $6::float8 - "count" as "available"
        from
          (
            select
              "ended",
              case
                when holds then greatest("clock", "window_start")
                else "clock"
              end as "now",
              case
                when holds then "count"
                else 0::float8
              end as "count",
              case
                when holds then "window_start"
                else "clock"
              end as "window_start"
            from
              (
                select
                  "count",
                  "window_start",
                  "clock",
                  "window_start" is not null
                  and (
                    "window_start" - "clock" <= $3::float8
                    and "clock" < "window_start" + $3::float8
                  ) as "holds",
                  case
                    when "clock" >= "window_start" + $3::float8 then pg_catalog.concat_ws (' ', "window_start", "count")
                  end as "ended"
                from
                  (
                    select
                      (
                        case
                          when "count" < 0 then 0
                          else "count"
                        end
                      )::float8 as "count",
                      round(date_part('epoch', "window_start") * 1000::float8) as "window_start",
                      floor(date_part('epoch', clock_timestamp()) * 1000::float8) as "clock"
                    from
                      "ratelimit_locked"
                    offset
                      0
                  ) as "read"
                offset
                  0
              ) as "dated"
            offset
              0
          ) as "advanced"
        offset
          0
      ) as "offered"
  ),
  "ratelimit_written" as (
    update "rate_limit_ephemeral"
    set
      "count" = (
        least(
          greatest("ratelimit_decided"."count" + $4::float8 * "ratelimit_decided"."granted", 0),
          9007199254740991
        )
      )::bigint,
      "prev_count" = null::bigint,
      "window_start" = to_timestamp(("ratelimit_decided"."window_start") / 1000::float8),
      "tokens" = null::float8,
      "last_refill" = null::timestamptz,
      "expires_at" = to_timestamp(
        (
          least(ceil(("ratelimit_decided"."window_start" + $3::float8) / $7::float8) * $7::float8, 8e15::float8)
        ) / 1000::float8
      )
    from
      "ratelimit_decided"
    where
      (
        (
          "rate_limit_ephemeral"."prefix" = $1::text
          and "rate_limit_ephemeral"."key" = $2::text
        )
        and "ratelimit_decided"."granted" > 0::float8
      )
  )
select
  "now",
  "granted",
  "count",
  "window_start",
  "ended"
from
  "ratelimit_decided"
