-- The job has one of these names, and is in one of these queues, if any are given.
name IN (SELECT value FROM json_each(:names))
AND (:queues IS NULL OR queue IN (SELECT value FROM json_each(:queues)))
