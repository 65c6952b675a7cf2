-- The job has no breaker, or one that is not open.
(breaker IS NULL OR (SELECT opened_at FROM breakers WHERE key = jobs.breaker) IS NULL)
