-- $1: prefix
-- $2: clock
with
  "ratelimit_deleted" as (
    delete from "rate_limit_ephemeral"
    where
      "rate_limit_ephemeral".ctid = any (
        array(
          (
            select
              "rate_limit_ephemeral".ctid
            from
              "rate_limit_ephemeral"
            where
              (
                "rate_limit_ephemeral"."prefix" = $1::text
                and not (
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
                and "rate_limit_ephemeral"."expires_at" <= coalesce(to_timestamp($2::float8 / 1000::float8), now())
              )
            order by
              "rate_limit_ephemeral"."expires_at" asc
            limit
              100
            for update
              skip locked
          )
        )
      )
    returning
      "key"
  )
select
  count(*) as deleted
from
  ratelimit_deleted
