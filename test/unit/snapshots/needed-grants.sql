-- $1: prefix
-- $2: key
-- $3: rate
-- $4: least
-- $5: back
-- $6: rows
select
  "rest",
  pg_catalog.encode (
    pg_catalog.float8send (coalesce("now", 0::float8)) || pg_catalog.float8send (coalesce("count", 0::float8)) || pg_catalog.float8send (coalesce("prev_count", 0::float8)) || pg_catalog.float8send (coalesce("window_start", 0::float8)) || pg_catalog.float8send (coalesce("tokens", 0::float8)) || pg_catalog.float8send (coalesce("last_refill", 0::float8)) || pg_catalog.float8send (coalesce("granted", 0::float8)) || pg_catalog.float8send (coalesce("used", 0::float8)) || pg_catalog.float8send (coalesce("lasts", 0::float8)),
    'hex'
  ) as "numbers"
from
  (
    select
      *
    from
      (
        select
          *,
          coalesce(sum(cap) over (), 0::float8) as granted,
          coalesce(sum(count) over (), 0::float8) as used,
          coalesce(
            max(window_start) filter (
              where
                lasting >= $4::float8
            ) over (),
            min(window_start) filter (
              where
                own > 0::float8
            ) over ()
          ) as lasts
        from
          (
            select
              *,
              row_number() over in_order as position,
              sum(own) over in_order - own as before,
              count(*) filter (
                where
                  own > 0::float8
              ) over in_order as nth,
              sum(count) over in_order as earlier,
              sum(own) over (
                order by
                  window_start desc
              ) as lasting
            from
              (
                select
                  *,
                  case
                    when window_start is null then 0::float8
                    else prev_count
                  end as cap,
                  window_start is null as owes,
                  case
                    when window_start is null then 0::float8
                    else prev_count
                  end - count as own
                from
                  (
                    select
                      "place",
                      "now",
                      "stored"."rest",
                      "stored"."count",
                      "stored"."prev_count",
                      "stored"."window_start",
                      "stored"."tokens",
                      "stored"."last_refill"
                    from
                      (
                        select
                          floor(date_part('epoch', clock_timestamp()) * 1000::float8) as now
                        offset
                          0
                      ) as timed
                      cross join rows
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
                        substr("key", length(call.key) + 1) as "rest",
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
                        "rate_limit_ephemeral"."prefix" = $1::text
                        and "rate_limit_ephemeral"."key" between call.key || '/debt' and call.key || '/grant/' || 'z'
                        and (
                          (
                            "rate_limit_ephemeral"."key" = call.key || '/debt'
                            and (
                              "rate_limit_ephemeral"."count" is not null
                              and "rate_limit_ephemeral"."prev_count" is not null
                              and "rate_limit_ephemeral"."window_start" is null
                              and "rate_limit_ephemeral"."tokens" is not null
                              and "rate_limit_ephemeral"."last_refill" is not null
                            )
                          )
                          or (
                            starts_with("rate_limit_ephemeral"."key", call.key || '/grant/')
                            and strpos(substr("rate_limit_ephemeral"."key", length(call.key || '/grant/') + 1), '/') = 0
                            and (
                              "rate_limit_ephemeral"."count" is not null
                              and "rate_limit_ephemeral"."prev_count" is not null
                              and "rate_limit_ephemeral"."window_start" is not null
                              and "rate_limit_ephemeral"."tokens" is not null
                              and "rate_limit_ephemeral"."last_refill" is not null
                            )
                            and round(date_part('epoch', "rate_limit_ephemeral"."window_start") * 1000::float8) > "timed"."now"
                          )
                        )
                      offset
                        0
                    ) as stored on true
                  ) as seen
                offset
                  0
              ) as has
            window
              in_order as (
                order by
                  window_start is null desc,
                  tokens,
                  window_start,
                  last_refill,
                  rest collate "C" rows unbounded preceding
              )
            offset
              0
          ) as running
        offset
          0
      ) as summed
    where
      owes
      or case
        when $5::float8 > 0::float8 then count > 0::float8
        and used - earlier < $3::float8
        else own > 0::float8
        and (
          before < $3::float8
          or nth <= $6::float8
        )
      end
      or position = 1
      or window_start < now + 60000::float8
  ) as seen
