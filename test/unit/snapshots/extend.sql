-- $1: leaseMs
-- $2: expiryGridMs
-- $3: slot
-- $4: prefix
-- $5: fence
with
  "ratelimit_changed" as (
    update "rate_limit_ephemeral"
    set
      "last_refill" = to_timestamp((floor(date_part('epoch', clock_timestamp()) * 1000::float8) + $1::float8) / 1000::float8),
      "expires_at" = greatest(
        "rate_limit_ephemeral"."expires_at",
        to_timestamp(
          (
            least(
              ceil((floor(date_part('epoch', clock_timestamp()) * 1000::float8) + $1::float8) / $2::float8) * $2::float8,
              8e15::float8
            )
          ) / 1000::float8
        )
      )
    where
      (
        (
          "rate_limit_ephemeral"."prefix" = $4::text
          and "rate_limit_ephemeral"."key" = $3::text
        )
        and (
          case
            when "rate_limit_ephemeral"."count" < 0 then 0
            else "rate_limit_ephemeral"."count"
          end
        )::float8 = $5::float8
        and (
          "rate_limit_ephemeral"."count" is not null
          and "rate_limit_ephemeral"."prev_count" is null
          and "rate_limit_ephemeral"."window_start" is null
          and "rate_limit_ephemeral"."tokens" is null
          and "rate_limit_ephemeral"."last_refill" is not null
        )
        and round(date_part('epoch', "rate_limit_ephemeral"."last_refill") * 1000::float8) > floor(date_part('epoch', clock_timestamp()) * 1000::float8)
      )
    returning
      "key"
  )
select
  "changed"
from
  (
    select
      count(*) as changed
    from
      ratelimit_changed
  ) as counted
