-- $1: prefix
-- $2: key
-- $3: periodMs
-- $4: initialTokens
-- $5: rate
-- $6: calls
-- $7: refillRate
-- $8: intervalMs
-- $9: limit
-- $10: tickMs
-- $11: expiryGridMs
with
  "ratelimit_locked" as (
    select
      "tokens" as "tokens",
      case
        when (
          "rate_limit_ephemeral"."count" is null
          and "rate_limit_ephemeral"."window_start" is null
          and "rate_limit_ephemeral"."tokens" is not null
        ) then "last_refill"
      end as "last_refill"
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
      "last_refill",
      "available",
      least(floor((available + 1e-9::float8) / $5::float8), $6::float8) as "granted"
    from
      (
        select
          "now",
          "tokens",
          "last_refill",
          least(
            "tokens" + floor(("now" - "last_refill") / $10::float8) * $10::float8 * $7::float8 / $8::float8,
            $9::float8
          ) as "available"
        from
          (
            select
              case
                when "holds" then greatest("clock", "last_refill")
                else "clock"
              end as "now",
              case
                when "holds" then "tokens"
                else $4::float8
              end as "tokens",
              case
                when "holds" then "last_refill"
                else "clock"
              end as "last_refill"
            from
              (
                select
                  "tokens",
                  "last_refill",
                  "clock",
                  "last_refill" is not null
                  and (
                    "last_refill" - "clock" <= $3::float8
                    and "last_refill" > '-1e14'::float8
                    and abs("tokens") < 1e100::float8
                  ) as "holds"
                from
                  (
                    select
                      "tokens" as "tokens",
                      round(date_part('epoch', "last_refill") * 1000::float8) as "last_refill",
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
      "prev_count" = case
        when (
          "rate_limit_ephemeral"."count" is null
          and "rate_limit_ephemeral"."last_refill" is not null
        ) then "rate_limit_ephemeral"."prev_count"
      end,
      "window_start" = null::timestamptz,
      "tokens" = least("ratelimit_decided"."available" - $5::float8 * "ratelimit_decided"."granted", $9::float8),
      "last_refill" = to_timestamp(
        (
          "ratelimit_decided"."last_refill" + floor(("ratelimit_decided"."now" - "ratelimit_decided"."last_refill") / $10::float8) * $10::float8
        ) / 1000::float8
      ),
      "expires_at" = to_timestamp(
        (
          least(
            ceil(
              (
                "ratelimit_decided"."last_refill" + floor(("ratelimit_decided"."now" - "ratelimit_decided"."last_refill") / $10::float8) * $10::float8 + ceil(
                  (
                    $9::float8 - least("ratelimit_decided"."available" - $5::float8 * "ratelimit_decided"."granted", $9::float8) - 1e-9::float8
                  ) * $8::float8 / $7::float8 / $10::float8
                ) * $10::float8
              ) / $11::float8
            ) * $11::float8,
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
  pg_catalog.encode (
    pg_catalog.float8send ("now") || pg_catalog.float8send ("tokens") || pg_catalog.float8send ("last_refill") || pg_catalog.float8send ("granted"),
    'hex'
  ) as "numbers"
from
  "ratelimit_decided"
