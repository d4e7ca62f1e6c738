-- $1: prefix
-- $2: periodMs
-- $3: initialTokens
-- $4: limit
-- $5: refillRate
-- $6: intervalMs
-- $7: tickMs
-- $8: top
select
  "key",
  "now",
  "tokens",
  "last_refill"
from
  (
    select
      "key",
      "holds",
      "now",
      "tokens",
      "last_refill",
      $4::float8 - least(
        "tokens" + floor(("now" - "last_refill") / $7::float8) * $7::float8 * $5::float8 / $6::float8,
        $4::float8
      ) as "used"
    from
      (
        select
          "key",
          "holds",
          case
            when holds then greatest("clock", "last_refill")
            else "clock"
          end as "now",
          case
            when holds then "tokens"
            else $3::float8
          end as "tokens",
          case
            when holds then "last_refill"
            else "clock"
          end as "last_refill"
        from
          (
            select
              "key",
              "tokens",
              "last_refill",
              "clock",
              "last_refill" - "clock" <= $2::float8
              and "last_refill" > -1e14
              and abs("tokens") < 1e100 as "holds"
            from
              (
                select
                  "key",
                  "tokens" as "tokens",
                  round(date_part('epoch', "last_refill") * 1000) as "last_refill",
                  floor(date_part('epoch', clock_timestamp()) * 1000) as "clock"
                from
                  (
                    select
                      "key" as "key",
                      "tokens" as "tokens",
                      "last_refill" as "last_refill"
                    from
                      "rate_limit_ephemeral"
                    where
                      "rate_limit_ephemeral"."prefix" = $1::text
                  ) as stored
                offset
                  0
              ) as "read"
            offset
              0
          ) as "dated"
        offset
          0
      ) as "advanced"
    offset
      0
  ) as "used"
where
  holds
  and used > 1e-9
order by
  used desc,
  key asc
limit
  $8::float8::bigint
