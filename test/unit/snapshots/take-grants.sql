-- $1: prefix
-- $2: rate
-- $3: calls
-- $4: key
with
  "ratelimit_seen" as (
    select
      "place",
      "rate",
      "calls",
      "row",
      "owes",
      "cap",
      "own",
      "total",
      "position",
      "capacity",
      "made",
      "pays"
    from
      (
        select
          "place",
          "rate",
          "calls",
          "row",
          "owes",
          "cap",
          "own",
          coalesce("total", 0::float8) as "total",
          coalesce("position", 1)::float8 as "position",
          coalesce("capacity", 0::float8) as "capacity",
          coalesce("made", 0::float8) as "made",
          coalesce(
            coalesce("total", 0::float8) >= "rate"
            and "own" <> 0::float8
            and "before" < "rate" * "calls",
            false
          ) as "pays"
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
                  $4::text::text[]
              )
            ),
            pg_catalog.unnest (
              (
                select
                  $2::text::float8[]
              )
            ),
            pg_catalog.unnest (
              (
                select
                  $3::text::float8[]
              )
            )
          ) with ordinality as
        call ("key", "rate", "calls", "place")
        left join lateral (
          select
            "row",
            "owes",
            "cap",
            "made",
            "cap" - "used" as own,
            row_number() over in_order as position,
            sum("cap" - "used") over in_order - ("cap" - "used") as before,
            sum("cap" - "used") over () as total,
            sum("cap") over () as capacity
          from
            (
              select
                "key" as "row",
                "window_start" is null as "owes",
                case
                  when "rate_limit_ephemeral"."window_start" is null then 0::float8
                  else (
                    case
                      when "rate_limit_ephemeral"."prev_count" < 0 then 0
                      else "rate_limit_ephemeral"."prev_count"
                    end
                  )::float8
                end as "cap",
                (
                  case
                    when "count" < 0 then 0
                    else "count"
                  end
                )::float8 as "used",
                "tokens" as "priority",
                "window_start" as "ends",
                round(date_part('epoch', "last_refill") * 1000::float8) as "made"
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
                    and "rate_limit_ephemeral"."window_start" > to_timestamp("timed"."now" / 1000::float8)
                  )
                )
              offset
                0
            ) as live
          window
            in_order as (
              order by
                "owes" desc,
                "priority",
                "ends",
                "made",
                "row" collate "C" rows unbounded preceding
            )
        ) as stored on true
        offset
          0
      ) as "seen"
    where
      "pays"
      or "position" = 1::float8
  ),
  "ratelimit_locked" as (
    select
      "paying"."place",
      "paying"."row",
      "stored"."granted",
      "stored"."used",
      "stored"."end"
    from
      (
        select
          "place",
          "row"
        from
          "ratelimit_seen"
        where
          "pays"
        order by
          "row" collate "C"
        offset
          0
      ) as paying
      cross join lateral (
        select
          (
            case
              when "prev_count" < 0 then 0
              else "prev_count"
            end
          )::float8 as "granted",
          (
            case
              when "count" < 0 then 0
              else "count"
            end
          )::float8 as "used",
          round(date_part('epoch', "window_start") * 1000::float8) as "end"
        from
          "rate_limit_ephemeral"
        where
          (
            "rate_limit_ephemeral"."prefix" = $1::text
            and "rate_limit_ephemeral"."key" = "paying"."row"
          )
        for update
          skip locked
      ) as stored
  ),
  "ratelimit_decided" as (
    select
      "place",
      "row",
      "made",
      "position",
      "now",
      "left",
      "capacity",
      "granted",
      "decided",
      case
        when not "pays"
        or not "decided"
        or "granted" = 0::float8 then 0::float8
        when "owes" then "has"
        else greatest(least("granted" * "rate" - "before", "has"), 0::float8)
      end as "share"
    from
      (
        select
          "place",
          "rate",
          "row",
          "owes",
          "made",
          "position",
          "pays",
          "now",
          "has",
          "before",
          "left",
          "capacity",
          "granted",
          "total" < "rate"
          or not "missed"
          and (
            "total" <= "rate" * "calls"
            or "granted" = "calls"
          ) as "decided"
        from
          (
            select
              "place",
              "rate",
              "calls",
              "row",
              "owes",
              "made",
              "position",
              "pays",
              "total",
              "now",
              "has",
              "before",
              "left",
              "capacity",
              "missed",
              greatest(least("calls", floor("offered" / "rate")), 0::float8) as "granted"
            from
              (
                select
                  "place",
                  "rate",
                  "calls",
                  "row",
                  "owes",
                  "made",
                  "position",
                  "pays",
                  "total",
                  "now",
                  "has",
                  sum("has") over (
                    partition by
                      "place"
                    order by
                      "position" rows unbounded preceding
                  ) - "has" as "before",
                  sum("has") over (
                    partition by
                      "place"
                  ) as "offered",
                  "total" - sum("seen") over (
                    partition by
                      "place"
                  ) + sum("has") over (
                    partition by
                      "place"
                  ) as "left",
                  "capacity" + sum("more") over (
                    partition by
                      "place"
                  ) as "capacity",
                  bool_or("missed") over (
                    partition by
                      "place"
                  ) as "missed"
                from
                  (
                    select
                      "place",
                      "rate",
                      "calls",
                      "row",
                      "owes",
                      "made",
                      "position",
                      "pays",
                      "total",
                      "capacity",
                      "now",
                      "pays"
                      and "used" is null as "missed",
                      case
                        when not "pays"
                        or "end" <= "now" then 0::float8
                        else case
                          when "owes" then 0::float8
                          else "granted"
                        end - "used"
                      end as "has",
                      case
                        when "pays" then case
                          when not "pays"
                          or "end" <= "now" then 0::float8
                          else case
                            when "owes" then 0::float8
                            else "granted"
                          end
                        end - "cap"
                        else 0::float8
                      end as "more",
                      case
                        when "pays" then "own"
                        else 0::float8
                      end as "seen"
                    from
                      (
                        select
                          floor(date_part('epoch', clock_timestamp()) * 1000::float8) as now
                        from
                          (
                            select
                              count(*)
                            from
                              "ratelimit_locked"
                            offset
                              0
                          ) as locks
                        offset
                          0
                      ) as timed
                      cross join "ratelimit_seen"
                      left join "ratelimit_locked" using (place, row)
                    offset
                      0
                  ) as "has"
                offset
                  0
              ) as "together"
            offset
              0
          ) as "granted"
        offset
          0
      ) as "decided"
  ),
  "ratelimit_written" as (
    update "rate_limit_ephemeral"
    set
      "count" = (
        least(
          greatest(
            (
              case
                when "rate_limit_ephemeral"."count" < 0 then 0
                else "rate_limit_ephemeral"."count"
              end
            )::float8 + "ratelimit_decided"."share",
            0
          ),
          9007199254740991
        )
      )::bigint
    from
      "ratelimit_decided"
    where
      (
        (
          "rate_limit_ephemeral"."prefix" = case
            when "ratelimit_decided"."row" is not null then $1::text
          end
          and "rate_limit_ephemeral"."key" = "ratelimit_decided"."row"
        )
        and "ratelimit_decided"."share" <> 0::float8
        and "ratelimit_decided"."share" between -9007199254740991::float8 and 9007199254740991::float8
      )
  )
select
  "ratelimit_decided"."place",
  "ratelimit_decided"."decided",
  "ratelimit_decided"."row",
  pg_catalog.encode (
    pg_catalog.float8send ("ratelimit_decided"."now") || pg_catalog.float8send ("ratelimit_decided"."capacity" - "ratelimit_decided"."left") || pg_catalog.float8send ("ratelimit_decided"."capacity") || pg_catalog.float8send ("ratelimit_decided"."now") || pg_catalog.float8send (0::float8) || pg_catalog.float8send ("ratelimit_decided"."granted") || pg_catalog.float8send ("ratelimit_decided"."share") || pg_catalog.float8send ("ratelimit_decided"."made") || pg_catalog.float8send ("ratelimit_decided"."position"),
    'hex'
  ) as "numbers"
from
  (
    select
      *
    from
      "ratelimit_decided"
    where
      "position" = 1::float8
      or "share" <> 0::float8
  ) as "ratelimit_decided"
