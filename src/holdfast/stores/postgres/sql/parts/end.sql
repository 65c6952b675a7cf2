-- Writes the rows of `ended`, which the same statement deleted from the live jobs, to the history.
-- A job that had ended in place keeps its fence and its end. The first matching rule says how long
-- to keep a job.
kept AS (
    INSERT INTO holdfast.history (
        {unchanged},
        state, attempt, snoozes, releases, crashes, result, error_code, error_text, worker, fence,
        run_at, finished_at, kept_until
    )
    SELECT
        {unchanged},
        end_state, attempt, snoozes, releases, crashes + crashed, end_result, end_code, end_text,
        lease_owner,
        CASE WHEN finished_at IS NULL THEN fence + 1 ELSE fence END,
        CASE run_at WHEN 'infinity' THEN coalesce(held_run_at, run_at) ELSE run_at END,
        coalesce(finished_at, now()),
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
                            ORDER BY rule.place LIMIT 1
                        ),
                        :kept_seconds::float8
                    )
                END
            ),
            -- A key without its job leads nowhere.
            CASE
                WHEN idempotency_key IS NOT NULL THEN (
                    SELECT keyed.expires_at FROM holdfast.idempotency_keys AS keyed
                    WHERE keyed.tenant = coalesce(ended.tenant, '')
                        AND keyed.key = ended.idempotency_key AND keyed.job_id = ended.id
                )
            END
        )
    FROM ended
    RETURNING kept_until, tenant, queue, state
),
counted AS (
    INSERT INTO holdfast.history_counts (kept_day, tenant, queue, state, jobs)
    SELECT
        (kept_until AT TIME ZONE 'UTC')::date AS kept_day, coalesce(tenant, ''), queue, state,
        count(*)
    FROM kept GROUP BY kept_day, tenant, queue, state
)
