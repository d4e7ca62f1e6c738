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
  "used",
  "like",
  "now",
  "tokens",
  "last_refill"
from
  (
    select
      "key",
      "counted",
      "expires",
      "like",
      "holds",
      "now",
      "tokens",
      "last_refill",
      case
        when "like" then $4::float8 - least(
          "tokens" + floor(("now" - "last_refill") / $7::float8) * $7::float8 * $5::float8 / $6::float8,
          $4::float8
        )
        else coalesce(counted, 0)
      end as "used"
    from
      (
        select
          "key",
          "counted",
          "expires",
          "like",
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
              "counted",
              "expires",
              "like",
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
                  "counted",
                  "expires",
                  "like",
                  "tokens" as "tokens",
                  round(date_part('epoch', "last_refill") * 1000) as "last_refill",
                  floor(date_part('epoch', clock_timestamp()) * 1000) as "clock"
                from
                  (
                    select
                      "key" as "key",
                      (
                        case
                          when "count" < 0 then 0
                          else "count"
                        end
                      )::float8 as "counted",
                      round(date_part('epoch', "expires_at") * 1000) as "expires",
                      (
                        "rate_limit_ephemeral"."tokens" is not null
                        and "rate_limit_ephemeral"."last_refill" is not null
                      ) as "like",
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
  case
    when "like" then holds
    and used > 1e-9
    else expires > now
    and counted is distinct from 0
  end
order by
  used desc,
  key asc
limit
  $8::float8::bigint
