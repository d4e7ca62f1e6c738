-- $1: prefix
-- $2: key
-- $3: limit
-- $4: waited
-- $5: leaseMs
-- $6: expiryGridMs
-- $7: waits
with
  "ratelimit_clock" as (
    select
      floor(date_part('epoch', clock_timestamp()) * 1000::float8) as now
  ),
  "ratelimit_slots" as (
    select
      case
        when right("key", 4) ~ '^[0-9]+$' then right("key", 4)::integer
      end as "number",
      case
        when (
          "rate_limit_ephemeral"."count" is not null
          and "rate_limit_ephemeral"."prev_count" is null
          and "rate_limit_ephemeral"."window_start" is null
          and "rate_limit_ephemeral"."tokens" is null
          and "rate_limit_ephemeral"."last_refill" is not null
        ) then round(date_part('epoch', "rate_limit_ephemeral"."last_refill") * 1000::float8)
        else 0::float8
      end as "ends"
    from
      "rate_limit_ephemeral"
    where
      "rate_limit_ephemeral"."prefix" = $1::text
      and "rate_limit_ephemeral"."key" between $2::text || '#0000' and $2::text || '#9999'
      and starts_with("rate_limit_ephemeral"."key", $2::text || '#')
      and length("rate_limit_ephemeral"."key") = length($2::text) + 5
  ),
  "ratelimit_open" as (
    select
      number,
      is_old
    from
      (
        select
          series.number,
          slots.ends is not null as is_old,
          coalesce(slots.ends > clock.now, false) as is_leased,
          count(*) filter (
            where
              slots.ends > clock.now
          ) over (
            order by
              series.number desc
          ) as above
        from
          "ratelimit_clock" as clock
          cross join generate_series(
            1,
            greatest(
              $3::integer,
              (
                select
                  max(number)
                from
                  "ratelimit_slots"
              )
            )
          ) as series (number)
          left join "ratelimit_slots" as slots on slots.number = series.number
      ) as numbered
    where
      number <= $3::integer
      and not is_leased
      and number::bigint + above <= $3::integer::bigint
      and (
        $4::integer = 1
        or not exists (
          select
          from
            "ratelimit_slots"
          where
            number = 0
            and ends > (
              select
                now
              from
                "ratelimit_clock"
            )
        )
      )
      and true
  ),
  "ratelimit_locked" as (
    select
      slot.key,
      slot.count
    from
      (
        select
          number
        from
          "ratelimit_open"
        where
          is_old
        order by
          number
        offset
          0
      ) as old
      cross join lateral (
        select
          "key",
          (
            case
              when "count" < 0 then 0
              else "count"
            end
          )::float8 as "count"
        from
          "rate_limit_ephemeral"
        where
          (
            (
              "rate_limit_ephemeral"."prefix" = case
                when $2::text || '#' || lpad("old"."number"::text, 4, '0') is not null then $1::text
              end
              and "rate_limit_ephemeral"."key" = $2::text || '#' || lpad("old"."number"::text, 4, '0')
            )
            and case
              when (
                "rate_limit_ephemeral"."count" is not null
                and "rate_limit_ephemeral"."prev_count" is null
                and "rate_limit_ephemeral"."window_start" is null
                and "rate_limit_ephemeral"."tokens" is null
                and "rate_limit_ephemeral"."last_refill" is not null
              ) then round(date_part('epoch', "rate_limit_ephemeral"."last_refill") * 1000::float8)
              else 0::float8
            end <= (
              select
                now
              from
                "ratelimit_clock"
            )
          )
        for update
          skip locked
      ) as slot
    limit
      1
  ),
  "ratelimit_missing" as (
    select
      $2::text || '#' || lpad("number"::text, 4, '0') as key
    from
      (
        select
          number
        from
          "ratelimit_open"
        where
          not is_old
          and not exists (
            select
            from
              "ratelimit_locked"
          )
        order by
          number
        offset
          0
      ) as numbered
    where
      pg_try_advisory_xact_lock(
        hashtextextended (
          '"rate_limit_ephemeral"' || $1::text || ' ' || $2::text || '#' || lpad("number"::text, 4, '0'),
          0::bigint
        )
      )
    limit
      1
  ),
  "ratelimit_taken" as (
    select
      key,
      is_old,
      now,
      greatest(coalesce(count, 0::float8) + 1::float8, now * 1000::float8) as fence
    from
      (
        select
          key,
          is_old,
          count,
          floor(date_part('epoch', clock_timestamp()) * 1000::float8) as now
        from
          (
            select
              key,
              true as is_old,
              count
            from
              "ratelimit_locked"
            union all
            select
              key,
              false,
              0::float8
            from
              "ratelimit_missing"
          ) as slot
        offset
          0
      ) as timed
  ),
  "ratelimit_updated" as (
    update "rate_limit_ephemeral"
    set
      "count" = ("slot"."fence")::bigint,
      "prev_count" = null::bigint,
      "window_start" = null::timestamptz,
      "tokens" = null::float8,
      "last_refill" = to_timestamp((now + $5::float8) / 1000::float8),
      "expires_at" = greatest(
        "rate_limit_ephemeral"."expires_at",
        to_timestamp((least(ceil((now + $5::float8) / $6::float8) * $6::float8, 8e15::float8)) / 1000::float8)
      )
    from
      "ratelimit_taken" as slot
    where
      (
        (
          "rate_limit_ephemeral"."prefix" = case
            when slot.key is not null then $1::text
          end
          and "rate_limit_ephemeral"."key" = slot.key
        )
        and slot.is_old
      )
    returning
      "rate_limit_ephemeral"."key"
  ),
  "ratelimit_inserted" as (
    insert into
      "rate_limit_ephemeral" ("prefix", "key", "count", "prev_count", "window_start", "tokens", "last_refill", "expires_at")
    select
      $1::text,
      slot.key,
      ("slot"."fence")::bigint,
      null::bigint,
      null::timestamptz,
      null::float8,
      to_timestamp((now + $5::float8) / 1000::float8),
      to_timestamp((least(ceil((now + $5::float8) / $6::float8) * $6::float8, 8e15::float8)) / 1000::float8)
    from
      "ratelimit_taken" as slot
    where
      not slot.is_old
    on conflict ("prefix", "key") do nothing
    returning
      "key"
  ),
  "ratelimit_sign" as (
    insert into
      "rate_limit_ephemeral" ("prefix", "key", "count", "prev_count", "window_start", "tokens", "last_refill", "expires_at")
    select
      $1::text,
      $2::text || '#0000',
      0::bigint,
      null::bigint,
      null::timestamptz,
      null::float8,
      to_timestamp((now + 250::float8) / 1000::float8),
      to_timestamp((least(ceil((now + 250::float8) / $6::float8) * $6::float8, 8e15::float8)) / 1000::float8)
    from
      "ratelimit_clock"
    where
      $7::integer = 1
      and not exists (
        select
        from
          "ratelimit_taken"
      )
      and not exists (
        select
        from
          "ratelimit_slots"
        where
          number = 0
          and ends > now + 125::float8
      )
      and true
    on conflict ("prefix", "key") do update
    set
      "count" = excluded.count,
      "prev_count" = excluded.prev_count,
      "window_start" = excluded.window_start,
      "tokens" = excluded.tokens,
      "last_refill" = excluded.last_refill,
      "expires_at" = greatest("rate_limit_ephemeral"."expires_at", excluded.expires_at)
  )
select
  "now",
  "slot",
  "fence",
  (
    select
      count(*)
    from
      "ratelimit_open"
  ) as open,
  (
    select
      min(ends)
    from
      "ratelimit_slots"
    where
      number > 0
      and ends > now
  ) as ends
from
  (
    "ratelimit_clock"
    left join (
      select
        key as slot,
        fence
      from
        "ratelimit_taken"
      where
        key in (
          select
            key
          from
            ratelimit_updated
          union all
          select
            key
          from
            ratelimit_inserted
        )
    ) as written on true
  )
