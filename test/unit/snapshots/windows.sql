-- $1: prefix
-- $2: after
-- $3: latestStart
-- $4: size
select
  "key" as "key",
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
  (
    "rate_limit_ephemeral"."prefix" = $1::text
    and "rate_limit_ephemeral"."key" > $2::text
    and (
      (
        "rate_limit_ephemeral"."count" is not null
        and "rate_limit_ephemeral"."prev_count" is null
        and "rate_limit_ephemeral"."window_start" is not null
        and "rate_limit_ephemeral"."tokens" is null
        and "rate_limit_ephemeral"."last_refill" is null
      )
      or (
        "rate_limit_ephemeral"."count" is not null
        and "rate_limit_ephemeral"."prev_count" is not null
        and "rate_limit_ephemeral"."window_start" is not null
        and "rate_limit_ephemeral"."tokens" is not null
        and "rate_limit_ephemeral"."last_refill" is null
      )
    )
    and round(date_part('epoch', "rate_limit_ephemeral"."window_start") * 1000::float8) <= $3::float8
  )
order by
  "rate_limit_ephemeral"."key" asc
limit
  (
    select
      $4::float8::bigint
  )
