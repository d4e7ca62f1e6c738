-- $1: ended
-- $2: most
-- $3: prefix
-- $4: key
select
  "place",
  "rest",
  pg_catalog.encode (
    pg_catalog.float8send (coalesce("now", 0::float8)) || pg_catalog.float8send (coalesce("count", 0::float8)) || pg_catalog.float8send (coalesce("prev_count", 0::float8)) || pg_catalog.float8send (coalesce("window_start", 0::float8)) || pg_catalog.float8send (coalesce("tokens", 0::float8)) || pg_catalog.float8send (coalesce("last_refill", 0::float8)),
    'hex'
  ) as "numbers"
from
  (
    select
      "place",
      "now",
      "stored"."rest",
      "stored"."count",
      "stored"."prev_count",
      "stored"."window_start",
      "stored"."tokens",
      "stored"."last_refill"
    from
      (
        select
          floor(date_part('epoch', clock_timestamp()) * 1000::float8) as now
        offset
          0
      ) as timed
      cross join rows
    from
      (
        pg_catalog.unnest (
          (
            select
              $4::text::text[]
          )
        )
      ) with ordinality as
    call ("key", "place")
    left join lateral (
      select
        substr("key", length(call.key) + 1) as "rest",
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
        round(date_part('epoch', "last_refill") * 1000::float8) as "last_refill"
      from
        "rate_limit_ephemeral"
      where
        "rate_limit_ephemeral"."prefix" = $3::text
        and "rate_limit_ephemeral"."key" between call.key || '/debt' and call.key || '/grant/' || 'z'
        and (
          (
            "rate_limit_ephemeral"."key" = call.key || '/debt'
            and (
              "rate_limit_ephemeral"."count" is not null
              and "rate_limit_ephemeral"."prev_count" is not null
              and "rate_limit_ephemeral"."window_start" is null
              and "rate_limit_ephemeral"."tokens" is not null
              and "rate_limit_ephemeral"."last_refill" is not null
            )
          )
          or (
            starts_with("rate_limit_ephemeral"."key", call.key || '/grant/')
            and strpos(substr("rate_limit_ephemeral"."key", length(call.key || '/grant/') + 1), '/') = 0
            and (
              "rate_limit_ephemeral"."count" is not null
              and "rate_limit_ephemeral"."prev_count" is not null
              and "rate_limit_ephemeral"."window_start" is not null
              and "rate_limit_ephemeral"."tokens" is not null
              and "rate_limit_ephemeral"."last_refill" is not null
            )
            and (
              $1::float8 > 0::float8
              or round(date_part('epoch', "rate_limit_ephemeral"."window_start") * 1000::float8) > "timed"."now"
            )
          )
        )
      limit
        $2::integer
    ) as stored on true
  ) as seen
