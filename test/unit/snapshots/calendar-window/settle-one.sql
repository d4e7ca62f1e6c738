-- $1: prefix
-- $2: key
-- $3: periodMs
-- $4: periodStart
-- $5: periodEnd
-- $6: driftMs
-- $7: rate
-- $8: calls
-- $9: limit
-- $10: paidWindowStart
-- $11: reserved
-- $12: expiryGridMs
with
  "ratelimit_locked" as (
    select
      "count" as "count",
      "prev_count" as "prev_count",
      case
        when (
          "rate_limit_ephemeral"."count" is not null
          and "rate_limit_ephemeral"."prev_count" is not null
          and "rate_limit_ephemeral"."tokens" is not null
          and "rate_limit_ephemeral"."last_refill" is null
        ) then "window_start"
      end as "window_start",
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
      "ended",
      "now",
      "count",
      "prev_count",
      "window_start",
      "tokens",
      "available",
      case
        when "now" >= $4::float8
        and "now" < $5::float8 then case
          when $7::float8 > 0::float8 then least(floor((9007199254740991::float8 - ("count")) / $7::float8), $8::float8)
          when "count" > 0::float8
          and coalesce("window_start" = $10::float8, $10::float8 is null) then $8::float8
          else 0
        end
        else 0
      end as "granted"
    from
      (
        select
          "ended",
          "now",
          "count",
          "prev_count",
          "window_start",
          "tokens",
          $9::float8 - "count" as "available"
        from
          (
            select
              "ended",
              case
                when "window_start" - "clock" between 0::float8 and $3::float8 then "window_start"
                else "clock"
              end as "now",
              case
                when "holds" then "count"
                else 0::float8
              end as "count",
              case
                when "holds" then "prev_count"
                else 0::float8
              end as "prev_count",
              case
                when "holds" then "window_start"
                else $4::float8
              end as "window_start",
              case
                when "holds" then "tokens"
                else 0::float8
              end as "tokens"
            from
              (
                select
                  "count",
                  "prev_count",
                  "window_start",
                  "tokens",
                  "clock",
                  "window_start" is not null
                  and (
                    "window_start" - "clock" <= $3::float8
                    and not (
                      "window_start" < $4::float8
                      and not (
                        abs("window_start" - $4::float8) <= $6::float8
                        and abs("window_start" - $4::float8) / 900000::float8 = floor(abs("window_start" - $4::float8) / 900000::float8)
                      )
                    )
                    and "window_start" < $5::float8
                  ) as "holds",
                  case
                    when (
                      "window_start" < $4::float8
                      and not (
                        abs("window_start" - $4::float8) <= $6::float8
                        and abs("window_start" - $4::float8) / 900000::float8 = floor(abs("window_start" - $4::float8) / 900000::float8)
                      )
                    ) then pg_catalog.encode (
                      pg_catalog.float8send ("window_start") || pg_catalog.float8send ("count") || pg_catalog.float8send ("prev_count"),
                      'hex'
                    )
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
                      (
                        case
                          when "prev_count" < 0 then 0
                          else "prev_count"
                        end
                      )::float8 as "prev_count",
                      round(date_part('epoch', "window_start") * 1000::float8) as "window_start",
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
          greatest("ratelimit_decided"."count" + $7::float8 * "ratelimit_decided"."granted", 0),
          9007199254740991
        )
      )::bigint,
      "prev_count" = (
        least(
          least(
            greatest(
              "ratelimit_decided"."prev_count" + case
                when "ratelimit_decided"."window_start" = $10::float8 then "ratelimit_decided"."granted" * $11::float8
                else 0
              end,
              0
            ),
            9007199254740991
          ),
          least(
            greatest("ratelimit_decided"."count" + $7::float8 * "ratelimit_decided"."granted", 0),
            9007199254740991
          )
        )
      )::bigint,
      "window_start" = to_timestamp(("ratelimit_decided"."window_start") / 1000::float8),
      "tokens" = greatest(
        "ratelimit_decided"."tokens",
        least(
          greatest("ratelimit_decided"."count" + $7::float8 * "ratelimit_decided"."granted", 0),
          9007199254740991
        ) - least(
          least(
            greatest(
              "ratelimit_decided"."prev_count" + case
                when "ratelimit_decided"."window_start" = $10::float8 then "ratelimit_decided"."granted" * $11::float8
                else 0
              end,
              0
            ),
            9007199254740991
          ),
          least(
            greatest("ratelimit_decided"."count" + $7::float8 * "ratelimit_decided"."granted", 0),
            9007199254740991
          )
        )
      ),
      "last_refill" = null::timestamptz,
      "expires_at" = to_timestamp(
        (
          least(
            ceil(
              (
                $5::float8 + $6::float8 + case
                  when (
                    abs("ratelimit_decided"."window_start" - $5::float8) <= $6::float8
                    and abs("ratelimit_decided"."window_start" - $5::float8) / 900000::float8 = floor(abs("ratelimit_decided"."window_start" - $5::float8) / 900000::float8)
                  ) then $3::float8
                  else 0::float8
                end
              ) / $12::float8
            ) * $12::float8,
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
    pg_catalog.float8send ("now") || pg_catalog.float8send ("count") || pg_catalog.float8send ("prev_count") || pg_catalog.float8send ("window_start") || pg_catalog.float8send ("tokens") || pg_catalog.float8send ("granted"),
    'hex'
  ) as "numbers",
  "ended"
from
  "ratelimit_decided"
