-- Probes go to jobs that were started least often; among equals, in turn to the newest and to one
-- drawn by lot. In the order of the queue, many jobs that fail by themselves would keep all others
-- from a probe. The end of an id that Holdfast makes is random.
--
-- `breakers.probed_id` is for workers of version 6.
ALTER TABLE jobs ADD COLUMN probes INTEGER NOT NULL DEFAULT 0; -- how often it was sent ahead
ALTER TABLE breakers ADD COLUMN probes INTEGER NOT NULL DEFAULT 0; -- since it opened
ALTER TABLE breakers ADD COLUMN worked_at INTEGER; -- the last success that a worker told of

CREATE INDEX jobs_parked ON jobs (breaker, fence, substr(id, 29), id, queue, name)
    WHERE breaker IS NOT NULL AND run_at = 9223372036854775807;
