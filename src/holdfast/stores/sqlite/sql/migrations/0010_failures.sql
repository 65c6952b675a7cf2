-- The jobs that died or failed, in the order of their ends: error groups follow it. SQLite asks
-- every row for the state again, which would be looked up if it were not here.
CREATE INDEX history_failures ON history (finished_at, id, state)
    WHERE state IN ('dead', 'failed');
