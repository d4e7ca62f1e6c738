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
      "prev_count" as "prev_count",
      case
        when (
          "rate_limit_ephemeral"."count" is not null
          and "rate_limit_ephemeral"."prev_count" is not null
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
      "now",
      "count",
      "prev_count",
      "window_start",
      "available",
      least(floor((available) / $4::float8), $5::float8) as "granted"
    from
      (
        select
          "now",
          "count",
          "prev_count",
          "window_start",
          $6::float8 - least("count", $6::float8) - ceil(least("prev_count", $6::float8) * ("window_start" + $3::float8 - "now") / $3::float8) as "available"
        from
          (
            select
              case
                when holds then greatest("clock", "window_start")
                else "clock"
              end as "now",
              case
                when holds then case
                  when "clock" >= "window_start" + $3::float8 then 0
                  else "count"
                end
                else 0::float8
              end as "count",
              case
                when holds then case
                  when "clock" >= "window_start" + $3::float8 then "count"
                  else "prev_count"
                end
                else 0::float8
              end as "prev_count",
              case
                when holds then case
                  when "clock" >= "window_start" + $3::float8 then "window_start" + $3::float8
                  else "window_start"
                end
                else "clock"
              end as "window_start"
            from
              (
                select
                  "count",
                  "prev_count",
                  "window_start",
                  "clock",
                  "window_start" is not null
                  and (
                    "window_start" - "clock" <= $3::float8
                    and "clock" < "window_start" + 2::float8 * $3::float8
                  ) as "holds"
                from
                  (
                    select
                      (
                        case
                          when "count" < 0 then 0
                          else "count"
                        end
                      )::float8 as "count",
                      (
                        case
                          when "prev_count" < 0 then 0
                          else "prev_count"
                        end
                      )::float8 as "prev_count",
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
      "prev_count" = (
        least(
          greatest(
            "ratelimit_decided"."prev_count" + least("ratelimit_decided"."count" + $4::float8 * "ratelimit_decided"."granted", 0),
            0
          ),
          9007199254740991
        )
      )::bigint,
      "window_start" = to_timestamp(("ratelimit_decided"."window_start") / 1000::float8),
      "tokens" = null::float8,
      "last_refill" = null::timestamptz,
      "expires_at" = to_timestamp(
        (
          least(
            ceil(("ratelimit_decided"."window_start" + 2::float8 * $3::float8) / $7::float8) * $7::float8,
            8e15::float8
          )
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
  "prev_count",
  "window_start"
from
  "ratelimit_decided"
