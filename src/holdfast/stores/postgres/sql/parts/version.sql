-- Differs whenever the status of a job does. Nothing but an operator or a breaker changes the due time
-- without a new fence.
concat_ws(
    '/', fence, state, run_at, encode(sha256(convert_to(progress::text, 'UTF8')), 'hex')
)
