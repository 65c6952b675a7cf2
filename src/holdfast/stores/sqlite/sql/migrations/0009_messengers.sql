-- A worker reports how its messengers are with every heartbeat. Workers of version 8 don't.
ALTER TABLE workers ADD COLUMN messengers TEXT NOT NULL DEFAULT '[]' CHECK (json_valid(messengers));
