-- $1: 0.prefix
-- $2: 0.key
-- $3: 1.prefix
-- $4: 1.key
-- $5: 0.periodMs
-- $6: 0.initialTokens
-- $7: 0.limit
-- $8: 0.refillRate
-- $9: 0.intervalMs
-- $10: 0.tickMs
-- $11: 0.needed
-- $12: 1.periodMs
-- $13: 1.limit
-- $14: 1.needed
-- $15: 0.rate
-- $16: 0.expiryGridMs
-- $17: 1.rate
-- $18: 1.expiryGridMs
with
  "ratelimit_found" as (
    select
      "0.there",
      "0.tokens",
      "0.lastrefill",
      "1.there",
      "1.count",
      "1.windowstart"
    from
      (
        select
          1
      ) as "one"
      left join lateral (
        select
          true as "0.there",
          "tokens" as "0.tokens",
          case
            when (
              "rate_limit_durable"."count" is null
              and "rate_limit_durable"."prev_count" is null
              and "rate_limit_durable"."window_start" is null
            ) then "last_refill"
          end as "0.lastrefill"
        from
          "rate_limit_durable"
        where
          (
            "rate_limit_durable"."prefix" = $1::text
            and "rate_limit_durable"."key" = $2::text
          )
        for update
      ) as "row_0" on true
      left join lateral (
        select
          true as "1.there",
          "count" as "1.count",
          case
            when (
              "rate_limit_ephemeral"."prev_count" is null
              and "rate_limit_ephemeral"."tokens" is null
              and "rate_limit_ephemeral"."last_refill" is null
            ) then "window_start"
          end as "1.windowstart"
        from
          "rate_limit_ephemeral"
        where
          (
            (
              "rate_limit_ephemeral"."prefix" = $3::text
              and "rate_limit_ephemeral"."key" = $4::text
            )
            and "0.there"
          )
        for update
      ) as "row_1" on true
  ),
  "ratelimit_decided" as (
    select
      "0.there",
      "1.there",
      "0.now",
      "0.tokens",
      "0.lastrefill",
      "0.available",
      "0.fits",
      "0.lets",
      "0.granted",
      "1.ended",
      "1.now",
      "1.count",
      "1.windowstart",
      "1.available",
      "1.fits",
      "1.lets",
      "1.granted",
      coalesce(
        "0.there"
        and "1.there"
        and "0.lets"
        and "1.lets",
        false
      ) as "done"
    from
      (
        select
          "0.there",
          "1.there",
          "0.now",
          "0.tokens",
          "0.lastrefill",
          "0.available",
          "0.fits",
          "0.lets",
          "0.granted",
          "ended" as "1.ended",
          "now" as "1.now",
          "count" as "1.count",
          "window_start" as "1.windowstart",
          "available" as "1.available",
          available >= $14::float8 as "1.fits",
          (
            available >= $14::float8
            and true
          ) as "1.lets",
          case
            when true then 1::float8
            else 0::float8
          end as "1.granted"
        from
          (
            select
              "0.there",
              "1.there",
              "0.now",
              "0.tokens",
              "0.lastrefill",
              "0.available",
              "0.fits",
              "0.lets",
              "0.granted",
              "ended",
              "now",
              "count",
              "window_start",
              $13::float8 - "count" as "available"
            from
              (
                select
                  "0.there",
                  "1.there",
                  "0.now",
                  "0.tokens",
                  "0.lastrefill",
                  "0.available",
                  "0.fits",
                  "0.lets",
                  "0.granted",
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
                      "0.there",
                      "1.there",
                      "0.now",
                      "0.tokens",
                      "0.lastrefill",
                      "0.available",
                      "0.fits",
                      "0.lets",
                      "0.granted",
                      "count",
                      "window_start",
                      "clock",
                      "window_start" - "clock" <= $12::float8
                      and "clock" < "window_start" + $12::float8
                      and "count" >= 0::float8 as "holds",
                      case
                        when "clock" >= "window_start" + $12::float8 then pg_catalog.concat_ws (' ', "window_start", "count")
                      end as "ended"
                    from
                      (
                        select
                          "0.there",
                          "1.there",
                          "0.now",
                          "0.tokens",
                          "0.lastrefill",
                          "0.available",
                          "0.fits",
                          "0.lets",
                          "0.granted",
                          (
                            case
                              when "1.count" < 0 then 0
                              else "1.count"
                            end
                          )::float8 as "count",
                          round(date_part('epoch', "1.windowstart") * 1000::float8) as "window_start",
                          floor(date_part('epoch', clock_timestamp()) * 1000::float8) as "clock"
                        from
                          (
                            select
                              "0.there",
                              "1.there",
                              "1.count",
                              "1.windowstart",
                              "now" as "0.now",
                              "tokens" as "0.tokens",
                              "last_refill" as "0.lastrefill",
                              "available" as "0.available",
                              available + 1e-9::float8 >= $11::float8 as "0.fits",
                              (
                                available + 1e-9::float8 >= $11::float8
                                and true
                              ) as "0.lets",
                              case
                                when true then 1::float8
                                else 0::float8
                              end as "0.granted"
                            from
                              (
                                select
                                  "0.there",
                                  "1.there",
                                  "1.count",
                                  "1.windowstart",
                                  "now",
                                  "tokens",
                                  "last_refill",
                                  least(
                                    "tokens" + floor(("now" - "last_refill") / $10::float8) * $10::float8 * $8::float8 / $9::float8,
                                    $7::float8
                                  ) as "available"
                                from
                                  (
                                    select
                                      "0.there",
                                      "1.there",
                                      "1.count",
                                      "1.windowstart",
                                      case
                                        when holds then greatest("clock", "last_refill")
                                        else "clock"
                                      end as "now",
                                      case
                                        when holds then "tokens"
                                        else $6::float8
                                      end as "tokens",
                                      case
                                        when holds then "last_refill"
                                        else "clock"
                                      end as "last_refill"
                                    from
                                      (
                                        select
                                          "0.there",
                                          "1.there",
                                          "1.count",
                                          "1.windowstart",
                                          "tokens",
                                          "last_refill",
                                          "clock",
                                          "last_refill" - "clock" <= $5::float8
                                          and "last_refill" > '-1e14'::float8
                                          and abs("tokens") < 1e100::float8 as "holds"
                                        from
                                          (
                                            select
                                              "0.there",
                                              "1.there",
                                              "1.count",
                                              "1.windowstart",
                                              "0.tokens" as "tokens",
                                              round(date_part('epoch', "0.lastrefill") * 1000::float8) as "last_refill",
                                              floor(date_part('epoch', clock_timestamp()) * 1000::float8) as "clock"
                                            from
                                              "ratelimit_found"
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
                            offset
                              0
                          ) as "decided"
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
        offset
          0
      ) as "decided"
  ),
  "ratelimit_written_0" as (
    update "rate_limit_durable"
    set
      "count" = null::bigint,
      "prev_count" = null::bigint,
      "window_start" = null::timestamptz,
      "tokens" = least("ratelimit_decided"."0.available" - $15::float8, $7::float8),
      "last_refill" = to_timestamp(
        (
          "ratelimit_decided"."0.lastrefill" + floor(("ratelimit_decided"."0.now" - "ratelimit_decided"."0.lastrefill") / $10::float8) * $10::float8
        ) / 1000::float8
      ),
      "expires_at" = to_timestamp(
        (
          least(
            ceil(
              (
                "ratelimit_decided"."0.lastrefill" + floor(("ratelimit_decided"."0.now" - "ratelimit_decided"."0.lastrefill") / $10::float8) * $10::float8 + ceil(
                  ($7::float8 - least("ratelimit_decided"."0.available" - $15::float8, $7::float8) - 1e-9::float8) * $9::float8 / $8::float8 / $10::float8
                ) * $10::float8
              ) / $16::float8
            ) * $16::float8,
            8e15::float8
          )
        ) / 1000::float8
      )
    from
      "ratelimit_decided"
    where
      (
        (
          "rate_limit_durable"."prefix" = $1::text
          and "rate_limit_durable"."key" = $2::text
        )
        and "ratelimit_decided"."0.there"
        and "ratelimit_decided"."done"
        and "ratelimit_decided"."0.granted" > 0::float8
      )
  ),
  "ratelimit_written_1" as (
    update "rate_limit_ephemeral"
    set
      "count" = (least(greatest("ratelimit_decided"."1.count" + $17::float8, 0), 9007199254740991))::bigint,
      "prev_count" = null::bigint,
      "window_start" = to_timestamp(("ratelimit_decided"."1.windowstart") / 1000::float8),
      "tokens" = null::float8,
      "last_refill" = null::timestamptz,
      "expires_at" = to_timestamp(
        (
          least(ceil(("ratelimit_decided"."1.windowstart" + $12::float8) / $18::float8) * $18::float8, 8e15::float8)
        ) / 1000::float8
      )
    from
      "ratelimit_decided"
    where
      (
        (
          "rate_limit_ephemeral"."prefix" = $3::text
          and "rate_limit_ephemeral"."key" = $4::text
        )
        and "ratelimit_decided"."1.there"
        and "ratelimit_decided"."done"
        and "ratelimit_decided"."1.granted" > 0::float8
      )
  )
select
  "ratelimit_decided"."done",
  "ratelimit_decided"."0.now" as "0.now",
  "ratelimit_decided"."0.granted" as "0.granted",
  "ratelimit_decided"."0.there" as "0.there",
  "ratelimit_decided"."0.tokens" as "0.tokens",
  "ratelimit_decided"."0.lastrefill" as "0.lastrefill",
  "ratelimit_decided"."1.now" as "1.now",
  "ratelimit_decided"."1.granted" as "1.granted",
  "ratelimit_decided"."1.there" as "1.there",
  "ratelimit_decided"."1.ended" as "1.ended",
  "ratelimit_decided"."1.count" as "1.count",
  "ratelimit_decided"."1.windowstart" as "1.windowstart"
from
  "ratelimit_decided"
