-- $1: prefix
-- $2: clock
-- $3: periodMs
-- $4: initialTokens
-- $5: limit
-- $6: refillRate
-- $7: intervalMs
-- $8: tickMs
-- $9: top
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
        when "like" then $5::float8 - least(
          "tokens" + floor(("now" - "last_refill") / $8::float8) * $8::float8 * $6::float8 / $7::float8,
          $5::float8
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
            else $4::float8
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
              "last_refill" is not null
              and (
                "last_refill" - "clock" <= $3::float8
                and "last_refill" > '-1e14'::float8
                and abs("tokens") < 1e100::float8
              ) as "holds"
            from
              (
                select
                  "key",
                  "counted",
                  "expires",
                  "like",
                  "tokens" as "tokens",
                  round(date_part('epoch', "last_refill") * 1000::float8) as "last_refill",
                  $2::float8 as "clock"
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
                      round(date_part('epoch', "expires_at") * 1000::float8) as "expires",
                      (
                        "rate_limit_ephemeral"."count" is null
                        and "rate_limit_ephemeral"."prev_count" is null
                        and "rate_limit_ephemeral"."window_start" is null
                        and "rate_limit_ephemeral"."tokens" is not null
                        and "rate_limit_ephemeral"."last_refill" is not null
                      ) as "like",
                      "tokens" as "tokens",
                      case
                        when (
                          "rate_limit_ephemeral"."count" is null
                          and "rate_limit_ephemeral"."prev_count" is null
                          and "rate_limit_ephemeral"."window_start" is null
                          and "rate_limit_ephemeral"."tokens" is not null
                          and "rate_limit_ephemeral"."last_refill" is not null
                        ) then "last_refill"
                      end as "last_refill"
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
    and used > 1e-9::float8
    else expires > now
    and counted is distinct from 0::float8
  end
order by
  used desc,
  key asc
limit
  $9::float8::bigint
