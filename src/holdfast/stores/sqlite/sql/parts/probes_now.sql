-- How often a leased job was sent as a probe; 0 if it is none now. It is one if it started while
-- its breaker was open, and that has not closed since.
CASE WHEN EXISTS (
    SELECT 1 FROM breakers
    WHERE breakers.key = jobs.breaker AND jobs.suspect = 0
        AND breakers.opened_at <= jobs.started_at AND breakers.next_probe_at IS NOT NULL
) THEN jobs.probes ELSE 0 END
