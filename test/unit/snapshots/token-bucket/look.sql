-- $1: prefix
-- $2: key
-- $3: periodMs
-- $4: initialTokens
select
  "place",
  pg_catalog.encode (
    pg_catalog.float8send ("now") || pg_catalog.float8send ("tokens") || pg_catalog.float8send ("last_refill"),
    'hex'
  ) as "numbers",
  pg_catalog.row_security_active ('"rate_limit_ephemeral"'::regclass) as "secured"
from
  (
    select
      "place",
      case
        when "holds" then greatest("clock", "last_refill")
        else "clock"
      end as "now",
      case
        when "holds" then "tokens"
        else $4::float8
      end as "tokens",
      case
        when "holds" then "last_refill"
        else "clock"
      end as "last_refill"
    from
      (
        select
          "place",
          "tokens",
          "last_refill",
          "clock",
          "last_refill" is not null
          and (
            "last_refill" - "clock" <= $3::float8
            and "last_refill" > '-1e14'::float8
            and abs("tokens") < 1e100::float8
          ) as "holds"
        from
          (
            select
              "place",
              "tokens" as "tokens",
              round(date_part('epoch', "last_refill") * 1000::float8) as "last_refill",
              floor(date_part('epoch', clock_timestamp()) * 1000::float8) as "clock"
            from
              rows
            from
              (
                pg_catalog.unnest (
                  (
                    select
                      $2::text::text[]
                  )
                )
              ) with ordinality as
            call ("key", "place")
            left join lateral (
              select
                "tokens" as "tokens",
                case
                  when (
                    "rate_limit_ephemeral"."count" is null
                    and "rate_limit_ephemeral"."window_start" is null
                    and "rate_limit_ephemeral"."tokens" is not null
                  ) then "last_refill"
                end as "last_refill"
              from
                "rate_limit_ephemeral"
              where
                "rate_limit_ephemeral"."prefix" = $1::text
                and "rate_limit_ephemeral"."key" = call.key
              offset
                0
            ) as stored on true
            offset
              0
          ) as "read"
        offset
          0
      ) as "dated"
    offset
      0
  ) as "advanced"
