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
