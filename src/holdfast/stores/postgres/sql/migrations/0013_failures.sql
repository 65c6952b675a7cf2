-- The jobs that died or failed, in the order of their ends: error groups follow it.
CREATE INDEX history_failures ON holdfast.history (finished_at, id)
    WHERE state IN ('dead', 'failed');
