-- A worker reports how its messengers are with every heartbeat. Workers of version 11 don't.
ALTER TABLE holdfast.workers ADD COLUMN messengers json NOT NULL DEFAULT '[]';
