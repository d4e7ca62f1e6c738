-- $1: prefix
-- $2: key
delete from "rate_limit_ephemeral"
where
  (
    "rate_limit_ephemeral"."prefix" = $1::text
    and "rate_limit_ephemeral"."key" = $2::text
  )
