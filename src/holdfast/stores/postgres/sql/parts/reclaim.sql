-- Reclaims the jobs in `lost`, which are leased, and ends those in `expired`, which wait; both are
-- locked.
attempted AS (
    INSERT INTO holdfast.attempts ({attempt})
    SELECT
        id, fence, attempt, :outcome, lease_owner, started_at, now(), :error_code,
        format('the worker %s %s', lease_owner, :reason::text)
    FROM lost
),
ended AS (
    DELETE FROM holdfast.jobs
    WHERE id = ANY (ARRAY(
        SELECT id FROM lost WHERE attempt >= max_attempts AND alone
        UNION ALL
        SELECT id FROM expired
    ))
    RETURNING
        *, result AS end_result,
        CASE state WHEN 'queued' THEN 'canceled' ELSE 'dead' END AS end_state,
        CASE state WHEN 'queued' THEN 'EXPIRED' ELSE :error_code END AS end_code,
        CASE state
            WHEN 'queued' THEN 'the job expired before it started'
            ELSE format('the worker %s %s', lease_owner, :reason)
        END AS end_text,
        CASE state WHEN 'queued' THEN 0 ELSE 1 END AS crashed
),
{end},
queued AS (
    UPDATE holdfast.jobs
    SET state = 'queued', fence = fence + 1, lease_owner = NULL, lease_expires_at = NULL,
        alone = false, run_at = now(), error_code = :error_code,
        error_text = format('the worker %s %s', lease_owner, :reason), crashes = crashes + 1,
        -- A job that ran beside others may be innocent: give back its last attempt, to run alone.
        attempt = CASE WHEN attempt >= max_attempts THEN attempt - 1 ELSE attempt END,
        suspect = suspect OR crashes + 1 >= :crashes_in_company_max
            OR attempt + 1 >= max_attempts
    WHERE id = ANY (ARRAY(SELECT id FROM lost WHERE NOT (attempt >= max_attempts AND alone)))
    RETURNING id, name, queue, tenant, correlation_id, attempt, fence, state, error_code, suspect
),
moved AS (
    SELECT * FROM queued
    UNION ALL
    SELECT id, name, queue, tenant, correlation_id, attempt, fence + 1, end_state, end_code, false
    FROM ended
)
SELECT
    moved.id AS job_id, name, queue, coalesce(tenant, 'default') AS tenant, correlation_id,
    coalesce(lost.attempt, moved.attempt) AS attempt, moved.fence, state,
    lost.lease_owner AS worker, error_code, suspect,
    (
        SELECT count(pg_notify('holdfast', 'q:' || queue))
        FROM (SELECT DISTINCT queue FROM queued) AS woken
    ) AS woken
FROM moved
LEFT JOIN lost ON lost.id = moved.id
