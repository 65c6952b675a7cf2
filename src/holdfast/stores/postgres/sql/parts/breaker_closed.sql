-- The job has no breaker, or one that is not open. A scalar subquery can't become a join, so only
-- jobs with a breaker cost a lookup.
(
    breaker IS NULL
    OR (SELECT opened_at FROM holdfast.breakers WHERE key = jobs.breaker) IS NULL
)
