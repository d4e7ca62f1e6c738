-- $1: prefix
-- $2: key
delete from "rate_limit_ephemeral"
where
  "rate_limit_ephemeral".ctid = any (
    array(
      select
        found
      from
        rows
      from
        (
          pg_catalog.unnest (
            (
              select
                $1::text::text[]
            )
          ),
          pg_catalog.unnest (
            (
              select
                $2::text::text[]
            )
          )
        ) with ordinality as
      call ("prefix", "key", "place")
      cross join lateral (
        select
          "rate_limit_ephemeral".ctid as "found"
        from
          "rate_limit_ephemeral"
        where
          "rate_limit_ephemeral"."prefix" = call.prefix
          and "rate_limit_ephemeral"."key" = call.key
          and (
            "rate_limit_ephemeral"."count" is null
            and "rate_limit_ephemeral"."prev_count" is null
            and "rate_limit_ephemeral"."window_start" is null
            and "rate_limit_ephemeral"."tokens" is null
            and "rate_limit_ephemeral"."last_refill" is null
          )
        for update
          skip locked
      ) as stored
    )
  )
