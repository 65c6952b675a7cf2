-- Writes the rows of `ended`, which were deleted from the live jobs by the same statement, to the
-- history: all columns of jobs, and what the end made of state, result and error. A job that had
-- ended in place keeps its fence and the time of its end. The first rule that matches says how
-- long a job is kept. Included by settle.sql, reclaim.sql,
-- jobs.sql and upkeep.sql.
kept AS (
    INSERT INTO holdfast.history (
        id, fence, run_at, created_at, started_at, finished_at, expires_at, kept_until, attempt,
        max_attempts, snoozes, releases, crashes, priority, state, queue, name, arguments, tenant,
        correlation_id, tags, idempotency_key, progress, result, error_code, error_text,
        requeued_from, breaker, trace
    )
    SELECT
        id, CASE WHEN finished_at IS NULL THEN fence + 1 ELSE fence END,
        CASE run_at WHEN 'infinity' THEN coalesce(held_run_at, run_at) ELSE run_at END, created_at,
        started_at, coalesce(finished_at, now()), expires_at,
        greatest(
            coalesce(finished_at, now()) + make_interval(
                secs => CASE
                    WHEN cardinality(:rule_queues::text[]) = 0 THEN :kept_seconds::float8
                    ELSE coalesce(
                        (
                            SELECT rule.seconds
                            FROM unnest(
                                :rule_queues::text[], :rule_states::text[], :rule_seconds::float8[]
                            ) WITH ORDINALITY AS rule (queue, state, seconds, place)
                            WHERE rule.queue IN ('*', ended.queue)
                                AND rule.state IN ('*', ended.end_state)
                            ORDER BY rule.place
                            LIMIT 1
                        ),
                        :kept_seconds::float8
                    )
                END
            ),
            -- A key whose job is forgotten would lead to nothing.
            CASE
                WHEN idempotency_key IS NOT NULL THEN (
                    SELECT keyed.expires_at
                    FROM holdfast.idempotency_keys AS keyed
                    WHERE keyed.tenant = coalesce(ended.tenant, '')
                        AND keyed.key = ended.idempotency_key AND keyed.job_id = ended.id
                )
            END
        ),
        attempt, max_attempts, snoozes, releases, crashes + crashed, priority, end_state, queue,
        name, arguments, tenant, correlation_id, tags, idempotency_key, progress, end_result,
        end_code, end_text, requeued_from, breaker, trace
    FROM ended
    RETURNING kept_until, tenant, queue, state
),
counted AS (
    INSERT INTO holdfast.history_counts (kept_day, tenant, queue, state, jobs)
    SELECT
        (kept_until AT TIME ZONE 'UTC')::date AS kept_day, coalesce(tenant, ''), queue, state,
        count(*)
    FROM kept
    GROUP BY kept_day, tenant, queue, state
)
