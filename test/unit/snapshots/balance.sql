-- $1: prefix
-- $2: key
-- $3: rate
-- $4: calls
-- $5: expiryGridMs
with
  "ratelimit_locked" as (
    select
      "count" as "count",
      "prev_count" as "prev_count",
      case
        when (
          "rate_limit_ephemeral"."count" is not null
          and "rate_limit_ephemeral"."prev_count" is not null
          and "rate_limit_ephemeral"."window_start" is null
          and "rate_limit_ephemeral"."tokens" is not null
        ) then "last_refill"
      end as "last_refill",
      "tokens" as "tokens"
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
      "last_refill",
      "tokens",
      "available",
      least(floor((available) / $3::float8), $4::float8) as "granted"
    from
      (
        select
          "now",
          "count",
          "prev_count",
          "last_refill",
          "tokens",
          "prev_count" - "count" as "available"
        from
          (
            select
              "clock" as "now",
              case
                when "holds" then least(greatest("count" + 0::float8, 0), 9007199254740991)
                else 0::float8
              end as "count",
              case
                when "holds" then least(greatest("prev_count" + 0::float8, 0), 9007199254740991)
                else 0::float8
              end as "prev_count",
              case
                when "holds" then "last_refill"
                else "clock"
              end as "last_refill",
              case
                when "holds" then least(greatest("tokens" + 0::float8, 0), 9007199254740991)
                else 0::float8
              end as "tokens"
            from
              (
                select
                  "count",
                  "prev_count",
                  "last_refill",
                  "tokens",
                  "clock",
                  "last_refill" is not null as "holds"
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
                      round(date_part('epoch', "last_refill") * 1000::float8) as "last_refill",
                      "tokens" as "tokens",
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
          greatest("ratelimit_decided"."count" + $3::float8 * "ratelimit_decided"."granted", 0),
          9007199254740991
        )
      )::bigint,
      "prev_count" = ("ratelimit_decided"."prev_count")::bigint,
      "window_start" = null::timestamptz,
      "tokens" = least(
        least(greatest("ratelimit_decided"."tokens" + 0::float8, 0), 9007199254740991),
        least(
          greatest("ratelimit_decided"."count" + $3::float8 * "ratelimit_decided"."granted", 0),
          9007199254740991
        )
      ),
      "last_refill" = to_timestamp(("ratelimit_decided"."now") / 1000::float8),
      "expires_at" = to_timestamp((least(ceil((8e15::float8) / $5::float8) * $5::float8, 8e15::float8)) / 1000::float8)
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
    pg_catalog.float8send ("now") || pg_catalog.float8send ("count") || pg_catalog.float8send ("prev_count") || pg_catalog.float8send ("last_refill") || pg_catalog.float8send ("tokens") || pg_catalog.float8send ("granted"),
    'hex'
  ) as "numbers"
from
  "ratelimit_decided"
