-- $1: prefix
-- $2: limit
-- $3: key
-- $4: calls
-- $5: since
-- $6: leaseMs
-- $7: expiryGridMs
-- $8: waits
with
  "ratelimit_clock" as (
    select
      floor(date_part('epoch', clock_timestamp()) * 1000::float8) as now,
      floor(date_part('epoch', clock_timestamp()) * 1000::float8) as at
  ),
  "ratelimit_keys" as (
    select
      place,
      key,
      calls,
      now,
      at,
      turn,
      kept_for,
      kept_until,
      coalesce(
        kept_until > at
        and kept_until <= at + 250::float8,
        false
      ) as is_kept,
      lock_name,
      leased,
      own,
      open,
      case
        when pg_catalog.cardinality (held) = 0 then ends - now
      end as lasts,
      case
        when pg_catalog.cardinality (own) = 0 then free
        else own
      end as free,
      greatest(
        least(
          calls,
          open - case
            when coalesce(
              kept_until > at
              and kept_until <= at + 250::float8,
              false
            )
            and kept_for < turn
            and pg_catalog.cardinality (leased)::float8 < 1000::float8 - floor(kept_for / 8796093022208::float8) then 1
            else 0
          end
        ),
        0
      ) as wanted
    from
      (
        select
          *,
          greatest($2::integer - pg_catalog.cardinality (leased), 0) as open,
          (1000::float8 - $2::integer::float8) * 8796093022208::float8 + coalesce(since, at) as turn
        from
          (
            select
              place,
              key,
              calls::bigint as calls,
              now,
              at,
              ends,
              since,
              kept_until,
              kept_for,
              lock_name,
              free,
              own,
              held,
              case
                when pg_catalog.cardinality (held) = 0 then leased
                else pg_catalog.array_cat (
                  leased,
                  array(
                    select
                      number
                    from
                      pg_catalog.unnest (held) as other (number)
                    where
                      number <> all (leased)
                  )
                )
              end as leased
            from
              (
                select
                  *,
                  case
                    when case
                      when pg_try_advisory_lock(lock_name) then not pg_advisory_unlock(lock_name)
                      else true
                    end then array(
                      select
                        (objid::bigint & 4095::bigint)::integer
                      from
                        pg_catalog.pg_locks
                      where
                        locktype = 'advisory'
                        and objsubid = 1
                        and granted
                        and database = (
                          select
                            oid
                          from
                            pg_catalog.pg_database
                          where
                            datname = current_database()
                        )
                        and (classid::bigint << 32 | objid::bigint) & ~ 4095::bigint = lock_name
                        and objid::bigint & 4095::bigint > 0
                        and pid is distinct from pg_backend_pid()
                    )
                    else '{}'::integer[]
                  end as held,
                  '{}'::integer[] as own
                from
                  rows
                from
                  (
                    pg_catalog.unnest (
                      (
                        select
                          $3::text::text[]
                      )
                    ),
                    pg_catalog.unnest (
                      (
                        select
                          $4::text::float8[]
                      )
                    ),
                    pg_catalog.unnest (
                      (
                        select
                          $5::text::float8[]
                      )
                    )
                  ) with ordinality as
                call ("key", "calls", "since", "place")
                cross join "ratelimit_clock"
                cross join lateral (
                  select
                    hashtextextended ('"rate_limit_ephemeral"' || $1::text || ' ' || call.key, 1::bigint) & ~ 4095::bigint as lock_name,
                    min(ends) filter (
                      where
                        number > 0
                        and ends > now
                    ) as ends,
                    max(ends) filter (
                      where
                        number = 0
                    ) as kept_until,
                    max(count) filter (
                      where
                        number = 0
                    ) as kept_for,
                    coalesce(
                      pg_catalog.array_agg (number) filter (
                        where
                          number > 0
                          and ends > now
                      ),
                      '{}'
                    ) as leased,
                    coalesce(
                      pg_catalog.array_agg (
                        number
                        order by
                          number
                      ) filter (
                        where
                          number > 0
                          and ends <= now
                      ),
                      '{}'
                    ) as free
                  from
                    (
                      select
                        case
                          when right("rate_limit_ephemeral"."key", 4) ~ '^[0-9]+$' then right("rate_limit_ephemeral"."key", 4)::integer
                        end as number,
                        case
                          when (
                            "rate_limit_ephemeral"."count" is not null
                            and "rate_limit_ephemeral"."prev_count" is null
                            and "rate_limit_ephemeral"."window_start" is null
                            and "rate_limit_ephemeral"."tokens" is null
                            and "rate_limit_ephemeral"."last_refill" is not null
                          ) then round(date_part('epoch', "rate_limit_ephemeral"."last_refill") * 1000::float8)
                          else 0::float8
                        end as ends,
                        (
                          case
                            when "rate_limit_ephemeral"."count" < 0 then 0
                            else "rate_limit_ephemeral"."count"
                          end
                        )::float8 as count
                      from
                        "rate_limit_ephemeral"
                      where
                        "rate_limit_ephemeral"."prefix" = $1::text
                        and "rate_limit_ephemeral"."key" between call.key || '#0000' and call.key || '#9999'
                        and starts_with("rate_limit_ephemeral"."key", call.key || '#')
                        and length("rate_limit_ephemeral"."key") = length(call.key) + 5
                      offset
                        0
                    ) as slot
                ) as numbers
                offset
                  0
              ) as found
            offset
              0
          ) as seen
      ) as turned
  ),
  "ratelimit_locked" as (
    select
      place,
      slot.key,
      slot.count
    from
      "ratelimit_keys" as of_key
      cross join lateral (
        select
          stored.key,
          stored.count
        from
          (
            select
              pg_catalog.unnest (of_key.free) as number
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
                    when of_key.key || '#' || lpad("number"::text, 4, '0') is not null then $1::text
                  end
                  and "rate_limit_ephemeral"."key" = of_key.key || '#' || lpad("number"::text, 4, '0')
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
          ) as stored
        where
          (
            pg_catalog.cardinality (of_key.own) > 0
            or number::bigint + (
              select
                count(*)
              from
                pg_catalog.unnest (of_key.leased) as lease (other)
              where
                other > number
            ) <= $2::integer::bigint
          )
        limit
          of_key.wanted
      ) as slot
    where
      wanted > 0
  ),
  "ratelimit_missing" as (
    select
      place,
      slot.key
    from
      "ratelimit_keys" as of_key
      cross join lateral (
        select
          (
            select
              count(*)
            from
              "ratelimit_locked" as found
            where
              found.place = of_key.place
          ) as found
        offset
          0
      ) as counted
      cross join lateral (
        select
          numbered.key
        from
          (
            select
              of_key.key || '#' || lpad("number"::text, 4, '0') as key
            from
              (
                select
                  generate_series(1, $2::integer) as number
                offset
                  0
              ) as series
            where
              number <> all (of_key.leased)
              and number <> all (of_key.free)
              and number::bigint + (
                select
                  count(*)
                from
                  pg_catalog.unnest (of_key.leased) as lease (other)
                where
                  other > number
              ) <= $2::integer::bigint
            offset
              0
          ) as numbered
        where
          pg_try_advisory_xact_lock(hashtextextended ('"rate_limit_ephemeral"' || $1::text || ' ' || numbered.key, 0::bigint))
        limit
          greatest(of_key.wanted - counted.found, 0)
      ) as slot
    where
      found < wanted
      and pg_catalog.cardinality (of_key.own) = 0
  ),
  "ratelimit_taken" as (
    select
      place,
      key,
      is_old,
      now,
      greatest(coalesce(count, 0::float8) + 1::float8, now * 1000::float8) as fence
    from
      (
        select
          place,
          key,
          is_old,
          count,
          floor(date_part('epoch', clock_timestamp()) * 1000::float8) as now
        from
          (
            select
              place,
              key,
              true as is_old,
              count
            from
              "ratelimit_locked"
            union all
            select
              place,
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
      "last_refill" = to_timestamp((now + $6::float8) / 1000::float8),
      "expires_at" = greatest(
        "rate_limit_ephemeral"."expires_at",
        to_timestamp((least(ceil((now + $6::float8) / $7::float8) * $7::float8, 8e15::float8)) / 1000::float8)
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
        and slot.fence between 0::float8 and 1e19::float8
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
      to_timestamp((now + $6::float8) / 1000::float8),
      to_timestamp((least(ceil((now + $6::float8) / $7::float8) * $7::float8, 8e15::float8)) / 1000::float8)
    from
      "ratelimit_taken" as slot
    where
      not slot.is_old
    on conflict ("prefix", "key") do nothing
    returning
      "key"
  ),
  "ratelimit_turn" as (
    insert into
      "rate_limit_ephemeral" ("prefix", "key", "count", "prev_count", "window_start", "tokens", "last_refill", "expires_at")
    select
      $1::text,
      key || '#0000',
      turn::bigint,
      null::bigint,
      null::timestamptz,
      null::float8,
      to_timestamp(
        (
          case
            when got then at
            else at + 250::float8
          end
        ) / 1000::float8
      ),
      to_timestamp(
        (
          least(
            ceil(
              (
                case
                  when got then at
                  else at + 250::float8
                end
              ) / $7::float8
            ) * $7::float8,
            8e15::float8
          )
        ) / 1000::float8
      )
    from
      (
        select
          *,
          exists (
            select
            from
              "ratelimit_taken" as slot
            where
              slot.place = of_key.place
          ) as got
        from
          "ratelimit_keys" as of_key
        offset
          0
      ) as of_key
    where
      case
        when got then is_kept
        and turn = kept_for
        else $8::integer = 1
        and (
          not is_kept
          or turn < kept_for
          or turn = kept_for
          and kept_until <= at + 125::float8
        )
      end
    order by
      place
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
  "place",
  "open",
  "next",
  "slot",
  pg_catalog.encode (pg_catalog.float8send ("lasts"), 'hex') as "lasts",
  pg_catalog.encode (pg_catalog.float8send ("at"), 'hex') as "at",
  pg_catalog.encode (pg_catalog.float8send ("fence"), 'hex') as "fence"
from
  (
    select
      of_key.place,
      open,
      lasts,
      at,
      kept_for is null
      or not is_kept
      or turn <= kept_for as next,
      slot,
      fence,
      lock_name
    from
      "ratelimit_keys" as of_key
      left join (
        select
          place,
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
      ) as written on written.place = of_key.place
  ) as answered
