-- $1: prefix
-- $2: key
-- $3: periodMs
-- $4: limit
-- $5: rate
-- $6: calls
-- $7: unitMs
-- $8: expiryGridMs
with
  "ratelimit_locked" as (
    select
      "tokens" as "tokens",
      case
        when (
          "rate_limit_ephemeral"."count" is null
          and "rate_limit_ephemeral"."prev_count" is null
          and "rate_limit_ephemeral"."window_start" is not null
          and "rate_limit_ephemeral"."tokens" is not null
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
      "tokens",
      "window_start",
      "available",
      least(floor((available + 1e-9::float8) / $5::float8), $6::float8) as "granted"
    from
      (
        select
          "now",
          "tokens",
          "window_start",
          least("tokens" + ("now" - "window_start") / $7::float8, $4::float8) as "available"
        from
          (
            select
              case
                when holds then greatest("clock", "window_start")
                else "clock"
              end as "now",
              case
                when holds then "tokens"
                else $4::float8
              end as "tokens",
              case
                when holds then "window_start"
                else "clock"
              end as "window_start"
            from
              (
                select
                  "tokens",
                  "window_start",
                  "clock",
                  "window_start" is not null
                  and (
                    "window_start" - "clock" <= $3::float8
                    and "window_start" > '-1e14'::float8
                    and abs("tokens") < 1e100::float8
                  ) as "holds"
                from
                  (
                    select
                      "tokens" as "tokens",
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
      "count" = null::bigint,
      "prev_count" = null::bigint,
      "window_start" = to_timestamp(("ratelimit_decided"."now") / 1000::float8),
      "tokens" = least("ratelimit_decided"."available" - $5::float8 * "ratelimit_decided"."granted", $4::float8),
      "last_refill" = null::timestamptz,
      "expires_at" = to_timestamp(
        (
          least(
            ceil(
              (
                "ratelimit_decided"."now" + ceil(
                  (
                    $4::float8 - least("ratelimit_decided"."available" - $5::float8 * "ratelimit_decided"."granted", $4::float8) - 1e-9::float8
                  ) * $7::float8
                )
              ) / $8::float8
            ) * $8::float8,
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
  "tokens",
  "window_start"
from
  "ratelimit_decided"
