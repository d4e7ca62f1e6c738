-- $1: prefix
-- $2: key
-- $3: rate
-- $4: calls
-- $5: limit
-- $6: periodMs
-- $7: expiryGridMs
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
      "count",
      "prev_count",
      "window_start",
      "available",
      least(floor((available) / "rate"), "calls") as "granted"
    from
      (
        select
          "place",
          "key",
          "rate",
          "calls",
          "now",
          "count",
          "prev_count",
          "window_start",
          $5::float8 - least("count", $5::float8) - ceil(least("prev_count", $5::float8) * ("window_start" + $6::float8 - "now") / $6::float8) as "available"
        from
          (
            select
              "place",
              "key",
              "rate",
              "calls",
              "now",
              0::float8 as "count",
              0::float8 as "prev_count",
              "now" as "window_start"
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
      (
        least(
          greatest("ratelimit_decided"."count" + "ratelimit_decided"."rate" * "ratelimit_decided"."granted", 0),
          9007199254740991
        )
      )::bigint,
      (
        least(
          greatest(
            "ratelimit_decided"."prev_count" + least("ratelimit_decided"."count" + "ratelimit_decided"."rate" * "ratelimit_decided"."granted", 0),
            0
          ),
          9007199254740991
        )
      )::bigint,
      to_timestamp(("ratelimit_decided"."window_start") / 1000::float8),
      null::float8,
      null::timestamptz,
      to_timestamp(
        (
          least(
            ceil(("ratelimit_decided"."window_start" + 2::float8 * $6::float8) / $7::float8) * $7::float8,
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
  "ratelimit_decided"."now",
  "ratelimit_decided"."granted",
  "ratelimit_decided"."count",
  "ratelimit_decided"."prev_count",
  "ratelimit_decided"."window_start",
  (
    not "ratelimit_decided"."granted" > 0::float8
    or "ratelimit_written"."key" is not null
  ) as decided
from
  "ratelimit_decided"
  left join "ratelimit_written" on "ratelimit_written"."key" = "ratelimit_decided"."key"
  cross join "ratelimit_setting"
