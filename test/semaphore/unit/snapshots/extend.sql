-- $1: prefix
-- $2: key
-- $3: fence
-- $4: leaseMs
-- $5: expiryGridMs
with
  "ratelimit_found" as (
    select
      call.place,
      call.key,
      call.fence
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
        )
      ) with ordinality as
    call ("key", "fence", "place")
    cross join lateral (
      select
        "last_refill"
      from
        "rate_limit_ephemeral"
      where
        (
          (
            "rate_limit_ephemeral"."prefix" = $1::text
            and "rate_limit_ephemeral"."key" = call.key
          )
          and (
            "rate_limit_ephemeral"."count" is not null
            and "rate_limit_ephemeral"."prev_count" is null
            and "rate_limit_ephemeral"."window_start" is null
            and "rate_limit_ephemeral"."tokens" is null
            and "rate_limit_ephemeral"."last_refill" is not null
          )
        )
      for update
        skip locked
    ) as slot
  ),
  "ratelimit_changed" as (
    update "rate_limit_ephemeral"
    set
      "last_refill" = to_timestamp((floor(date_part('epoch', clock_timestamp()) * 1000::float8) + $4::float8) / 1000::float8),
      "expires_at" = greatest(
        "rate_limit_ephemeral"."expires_at",
        to_timestamp(
          (
            least(
              ceil((floor(date_part('epoch', clock_timestamp()) * 1000::float8) + $4::float8) / $5::float8) * $5::float8,
              8e15::float8
            )
          ) / 1000::float8
        )
      )
    from
      "ratelimit_found" as slot
    where
      (
        (
          "rate_limit_ephemeral"."prefix" = case
            when slot.key is not null then $1::text
          end
          and "rate_limit_ephemeral"."key" = slot.key
        )
        and (
          case
            when "rate_limit_ephemeral"."count" < 0 then 0
            else "rate_limit_ephemeral"."count"
          end
        )::float8 = slot.fence
        and round(date_part('epoch', "rate_limit_ephemeral"."last_refill") * 1000::float8) > floor(date_part('epoch', clock_timestamp()) * 1000::float8)
        and slot.fence between 0::float8 and 1e19::float8
      )
    returning
      "rate_limit_ephemeral"."key"
  )
select
  "place",
  "changed"
from
  (
    select
      place,
      key in (
        select
          key
        from
          "ratelimit_changed"
      ) as changed
    from
      "ratelimit_found"
  ) as answered
