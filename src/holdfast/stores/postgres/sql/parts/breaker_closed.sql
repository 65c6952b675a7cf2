-- The job has no breaker, or one that is not open. As a value, which can't become a join: it is
-- looked up for jobs with a breaker only. Included by claim.sql and diagnosis.sql.
(
    breaker IS NULL
    OR (SELECT opened_at FROM holdfast.breakers WHERE key = jobs.breaker) IS NULL
)
