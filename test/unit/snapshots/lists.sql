-- $1: 0.prefix
-- $2: 1.prefix
-- $3: 0.key
-- $4: 0.rate
-- $5: 1.key
-- $6: 1.rate
-- $7: 0.periodMs
-- $8: 0.initialTokens
-- $9: 1.periodMs
-- $10: 0.refillRate
-- $11: 0.intervalMs
-- $12: 0.limit
-- $13: 0.tickMs
-- $14: 1.limit
-- $15: 0.expiryGridMs
-- $16: 1.expiryGridMs
with
  "ratelimit_found" as (
    select
      "place",
      "0.key",
      "0.rate",
      "1.key",
      "1.rate",
      "0.tokens",
      "0.lastrefill",
      "1.count",
      "1.windowstart",
      floor(date_part('epoch', clock_timestamp()) * 1000::float8) as "clock"
    from
      rows
    from
      (
        pg_catalog.unnest (
          (
            select
              $3::text::text[]
          )
        ),
        pg_catalog.unnest (
          (
            select
              $4::text::float8[]
          )
        ),
        pg_catalog.unnest (
          (
            select
              $5::text::text[]
          )
        ),
        pg_catalog.unnest (
          (
            select
              $6::text::float8[]
          )
        )
      ) with ordinality as
    call ("0.key", "0.rate", "1.key", "1.rate", "place")
    cross join lateral (
      select
        true as "0.there",
        "rate_limit_durable"."tokens" as "0.tokens",
        round(
          date_part(
            'epoch',
            case
              when (
                "rate_limit_durable"."count" is null
                and "rate_limit_durable"."window_start" is null
                and "rate_limit_durable"."tokens" is not null
              ) then "rate_limit_durable"."last_refill"
            end
          ) * 1000::float8
        ) as "0.lastrefill"
      from
        "rate_limit_durable"
      where
        (
          "rate_limit_durable"."prefix" = $1::text
          and "rate_limit_durable"."key" = "0.key"
        )
      for update
        skip locked
    ) as "row_0"
    cross join lateral (
      select
        true as "1.there",
        (
          case
            when "rate_limit_ephemeral"."count" < 0 then 0
            else "rate_limit_ephemeral"."count"
          end
        )::float8 as "1.count",
        round(
          date_part(
            'epoch',
            case
              when (
                "rate_limit_ephemeral"."count" is not null
                and "rate_limit_ephemeral"."prev_count" is null
                and "rate_limit_ephemeral"."tokens" is null
                and "rate_limit_ephemeral"."last_refill" is null
              ) then "rate_limit_ephemeral"."window_start"
            end
          ) * 1000::float8
        ) as "1.windowstart"
      from
        "rate_limit_ephemeral"
      where
        (
          "rate_limit_ephemeral"."prefix" = $2::text
          and "rate_limit_ephemeral"."key" = "1.key"
        )
      for update
        skip locked
    ) as "row_1"
  ),
  "ratelimit_decided" as (
    select
      "place",
      "0.key",
      "0.rate",
      "1.key",
      "1.rate",
      "1.ended",
      "0.now",
      "0.tokens",
      "0.lastrefill",
      "1.now",
      "1.count",
      "1.windowstart",
      "0.available",
      "1.available",
      coalesce(
        true
        and "0.available" + 1e-9::float8 >= "0.rate"
        and "1.available" >= "1.rate",
        false
      ) as "done"
    from
      (
        select
          "place",
          "0.key",
          "0.rate",
          "1.key",
          "1.rate",
          "1.ended",
          "0.now",
          "0.tokens",
          "0.lastrefill",
          "1.now",
          "1.count",
          "1.windowstart",
          least(
            "0.tokens" + floor(("0.now" - "0.lastrefill") / $13::float8) * $13::float8 * $10::float8 / $11::float8,
            $12::float8
          ) as "0.available",
          $14::float8 - "1.count" as "1.available"
        from
          (
            select
              "place",
              "0.key",
              "0.rate",
              "1.key",
              "1.rate",
              "1.ended",
              case
                when "0.holds" then greatest("clock", "0.lastrefill")
                else "clock"
              end as "0.now",
              case
                when "0.holds" then "0.tokens"
                else $8::float8
              end as "0.tokens",
              case
                when "0.holds" then "0.lastrefill"
                else "clock"
              end as "0.lastrefill",
              case
                when "1.holds" then greatest("clock", "1.windowstart")
                else "clock"
              end as "1.now",
              case
                when "1.holds" then "1.count"
                else 0::float8
              end as "1.count",
              case
                when "1.holds" then "1.windowstart"
                else "clock"
              end as "1.windowstart"
            from
              (
                select
                  "place",
                  "0.key",
                  "0.rate",
                  "1.key",
                  "1.rate",
                  "0.tokens",
                  "0.lastrefill",
                  "1.count",
                  "1.windowstart",
                  "clock",
                  "0.lastrefill" is not null
                  and (
                    "0.lastrefill" - "clock" <= $7::float8
                    and "0.lastrefill" > '-1e14'::float8
                    and abs("0.tokens") < 1e100::float8
                  ) as "0.holds",
                  "1.windowstart" is not null
                  and (
                    "1.windowstart" - "clock" <= $9::float8
                    and "clock" < "1.windowstart" + $9::float8
                  ) as "1.holds",
                  case
                    when "clock" >= "1.windowstart" + $9::float8 then pg_catalog.encode (pg_catalog.float8send ("1.windowstart") || pg_catalog.float8send ("1.count"), 'hex')
                  end as "1.ended"
                from
                  "ratelimit_found"
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
  "ratelimit_written_0" as (
    update "rate_limit_durable"
    set
      "count" = null::bigint,
      "prev_count" = case
        when (
          "rate_limit_durable"."count" is null
          and "rate_limit_durable"."last_refill" is not null
        ) then "rate_limit_durable"."prev_count"
      end,
      "window_start" = null::timestamptz,
      "tokens" = least("ratelimit_decided"."0.available" - "0.rate", $12::float8),
      "last_refill" = to_timestamp(
        (
          "ratelimit_decided"."0.lastrefill" + floor(("ratelimit_decided"."0.now" - "ratelimit_decided"."0.lastrefill") / $13::float8) * $13::float8
        ) / 1000::float8
      ),
      "expires_at" = to_timestamp(
        (
          least(
            ceil(
              (
                "ratelimit_decided"."0.lastrefill" + floor(("ratelimit_decided"."0.now" - "ratelimit_decided"."0.lastrefill") / $13::float8) * $13::float8 + ceil(
                  ($12::float8 - least("ratelimit_decided"."0.available" - "0.rate", $12::float8) - 1e-9::float8) * $11::float8 / $10::float8 / $13::float8
                ) * $13::float8
              ) / $15::float8
            ) * $15::float8,
            8e15::float8
          )
        ) / 1000::float8
      )
    from
      "ratelimit_decided"
    where
      (
        (
          "rate_limit_durable"."prefix" = case
            when "0.key" is not null then $1::text
          end
          and "rate_limit_durable"."key" = "0.key"
        )
        and "ratelimit_decided"."done"
        and "ratelimit_decided"."place" between 0 and 9007199254740991
      )
  ),
  "ratelimit_written_1" as (
    update "rate_limit_ephemeral"
    set
      "count" = (least(greatest("ratelimit_decided"."1.count" + "1.rate", 0), 9007199254740991))::bigint,
      "prev_count" = null::bigint,
      "window_start" = to_timestamp(("ratelimit_decided"."1.windowstart") / 1000::float8),
      "tokens" = null::float8,
      "last_refill" = null::timestamptz,
      "expires_at" = to_timestamp(
        (
          least(ceil(("ratelimit_decided"."1.windowstart" + $9::float8) / $16::float8) * $16::float8, 8e15::float8)
        ) / 1000::float8
      )
    from
      "ratelimit_decided"
    where
      (
        (
          "rate_limit_ephemeral"."prefix" = case
            when "1.key" is not null then $2::text
          end
          and "rate_limit_ephemeral"."key" = "1.key"
        )
        and "ratelimit_decided"."done"
        and "ratelimit_decided"."place" between 0 and 9007199254740991
      )
  )
select
  "ratelimit_decided"."place",
  "ratelimit_decided"."done",
  pg_catalog.encode (
    pg_catalog.float8send ("ratelimit_decided"."0.now") || pg_catalog.float8send ("ratelimit_decided"."0.tokens") || pg_catalog.float8send ("ratelimit_decided"."0.lastrefill"),
    'hex'
  ) as "0.numbers",
  "ratelimit_decided"."1.ended",
  pg_catalog.encode (
    pg_catalog.float8send ("ratelimit_decided"."1.now") || pg_catalog.float8send ("ratelimit_decided"."1.count") || pg_catalog.float8send ("ratelimit_decided"."1.windowstart"),
    'hex'
  ) as "1.numbers",
  true as "0.there",
  true as "1.there"
from
  "ratelimit_decided"
