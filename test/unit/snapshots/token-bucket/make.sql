-- $1: prefix
-- $2: key
-- $3: rate
-- $4: calls
-- $5: initialTokens
-- $6: refillRate
-- $7: intervalMs
-- $8: limit
-- $9: tickMs
-- $10: expiryGridMs
with
  "ratelimit_setting" as (
    select
      set_config('lock_timeout', '3ms', true) as "setting_0"
  ),
  "ratelimit_decided" as (
    select
      "place",
      "key",
      "rate",
      "calls",
      "now",
      "tokens",
      "last_refill",
      "available",
      least(floor((available + 1e-9::float8) / "rate"), "calls") as "granted"
    from
      (
        select
          "place",
          "key",
          "rate",
          "calls",
          "now",
          "tokens",
          "last_refill",
          least(
            "tokens" + floor(("now" - "last_refill") / $9::float8) * $9::float8 * $6::float8 / $7::float8,
            $8::float8
          ) as "available"
        from
          (
            select
              "place",
              "key",
              "rate",
              "calls",
              "now",
              $5::float8 as "tokens",
              "now" as "last_refill"
            from
              (
                select
                  "place",
                  "key",
                  "rate",
                  "calls",
                  floor(date_part('epoch', clock_timestamp()) * 1000::float8) as "now"
                from
                  rows
                from
                  (
                    pg_catalog.unnest (
                      (
                        select
                          $2::text::text[]
                      )
                    ),
                    pg_catalog.unnest (
                      (
                        select
                          $3::text::float8[]
                      )
                    ),
                    pg_catalog.unnest (
                      (
                        select
                          $4::text::float8[]
                      )
                    )
                  ) with ordinality as
                call ("key", "rate", "calls", "place")
                where
                  not exists (
                    select
                    from
                      "rate_limit_ephemeral"
                    where
                      "rate_limit_ephemeral"."prefix" = $1::text
                      and "rate_limit_ephemeral"."key" = call.key
                    offset
                      0
                  )
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
    insert into
      "rate_limit_ephemeral" ("prefix", "key", "count", "prev_count", "window_start", "tokens", "last_refill", "expires_at")
    select
      $1::text,
      "ratelimit_decided"."key",
      null::bigint,
      null::bigint,
      null::timestamptz,
      least(
        "ratelimit_decided"."available" - "ratelimit_decided"."rate" * "ratelimit_decided"."granted",
        $8::float8
      ),
      to_timestamp(
        (
          "ratelimit_decided"."last_refill" + floor(("ratelimit_decided"."now" - "ratelimit_decided"."last_refill") / $9::float8) * $9::float8
        ) / 1000::float8
      ),
      to_timestamp(
        (
          least(
            ceil(
              (
                "ratelimit_decided"."last_refill" + floor(("ratelimit_decided"."now" - "ratelimit_decided"."last_refill") / $9::float8) * $9::float8 + ceil(
                  (
                    $8::float8 - least(
                      "ratelimit_decided"."available" - "ratelimit_decided"."rate" * "ratelimit_decided"."granted",
                      $8::float8
                    ) - 1e-9::float8
                  ) * $7::float8 / $6::float8 / $9::float8
                ) * $9::float8
              ) / $10::float8
            ) * $10::float8,
            8e15::float8
          )
        ) / 1000::float8
      )
    from
      "ratelimit_decided"
      cross join "ratelimit_setting"
    where
      "ratelimit_decided"."granted" > 0::float8
    on conflict ("prefix", "key") do nothing
    returning
      "key"
  )
select
  "ratelimit_decided"."place",
  pg_catalog.encode (
    pg_catalog.float8send ("now") || pg_catalog.float8send ("tokens") || pg_catalog.float8send ("last_refill") || pg_catalog.float8send ("granted"),
    'hex'
  ) as "numbers",
  (
    not "ratelimit_decided"."granted" > 0::float8
    or "ratelimit_written"."key" is not null
  ) as decided
from
  "ratelimit_decided"
  left join "ratelimit_written" on "ratelimit_written"."key" = "ratelimit_decided"."key"
  cross join "ratelimit_setting"
