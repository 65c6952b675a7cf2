-- SOQL, not SQL. An organization may have records with other statuses; they are not jobs. What is
-- due also has records whose lock has expired: they are only seen, so that nobody asks for them.

-- name: due
SELECT Id, Status__c, Template__c, Data__c, RequestHash__c, Priority__c, Attempts__c,
    CorrelationId__c, LockVersion__c, Fence__c, Releases__c, Snoozes__c, Crashes__c
FROM Generated_Document__c
WHERE ((Status__c = 'QUEUED' AND (ScheduledAfter__c = null OR ScheduledAfter__c <= :now))
        OR (Status__c = 'PROCESSING' AND (LockedUntil__c = null OR LockedUntil__c <= :now)))
    AND Id NOT IN :aside
ORDER BY Priority__c DESC NULLS LAST, CreatedDate ASC, Id ASC
LIMIT :limit

-- name: due_one
SELECT Id, Status__c, Template__c, Data__c, RequestHash__c, Priority__c, Attempts__c,
    CorrelationId__c, LockVersion__c, Fence__c, Releases__c, Snoozes__c, Crashes__c
FROM Generated_Document__c
WHERE Id = :id AND Status__c = 'QUEUED' AND (ScheduledAfter__c = null OR ScheduledAfter__c <= :now)

-- name: standing
SELECT Id, Status__c, Attempts__c, LockVersion__c, Fence__c, Error__c, Releases__c, Snoozes__c,
    Crashes__c
FROM Generated_Document__c
WHERE Id IN :ids

-- name: lapsed
SELECT Id, Status__c, Attempts__c, CorrelationId__c, LockedBy__c, LockVersion__c, Fence__c,
    Crashes__c
FROM Generated_Document__c
WHERE Status__c = 'PROCESSING' AND (LockedUntil__c = null OR LockedUntil__c <= :now)
ORDER BY LockedUntil__c ASC NULLS FIRST
LIMIT :limit

-- name: leased_by
SELECT Id, Status__c, Attempts__c, CorrelationId__c, LockedBy__c, LockVersion__c, Fence__c,
    Crashes__c
FROM Generated_Document__c
WHERE Status__c = 'PROCESSING' AND LockedBy__c = :worker
LIMIT :limit

-- name: records
SELECT Id, Status__c, Template__c, Data__c, RequestHash__c, Priority__c, Attempts__c,
    CorrelationId__c, ScheduledAfter__c, LockedUntil__c, LockedBy__c, LockVersion__c, Fence__c,
    OutputFileId__c, Error__c, Releases__c, Snoozes__c, Crashes__c, CreatedDate
FROM Generated_Document__c
WHERE Id IN :ids

-- name: records_of_hashes
SELECT Id, Template__c, Data__c, RequestHash__c
FROM Generated_Document__c
WHERE RequestHash__c IN :hashes

-- name: page
SELECT Id, Status__c, Template__c, Data__c, RequestHash__c, Priority__c, Attempts__c,
    CorrelationId__c, ScheduledAfter__c, LockedUntil__c, LockedBy__c, LockVersion__c, Fence__c,
    OutputFileId__c, Error__c, Releases__c, Snoozes__c, Crashes__c, CreatedDate
FROM Generated_Document__c
WHERE Status__c IN :statuses AND (CreatedDate < :before OR (CreatedDate = :before AND Id < :id))
ORDER BY CreatedDate DESC, Id DESC
LIMIT :limit

-- name: page_of_correlation
SELECT Id, Status__c, Template__c, Data__c, RequestHash__c, Priority__c, Attempts__c,
    CorrelationId__c, ScheduledAfter__c, LockedUntil__c, LockedBy__c, LockVersion__c, Fence__c,
    OutputFileId__c, Error__c, Releases__c, Snoozes__c, Crashes__c, CreatedDate
FROM Generated_Document__c
WHERE Status__c IN :statuses AND CorrelationId__c = :correlation_id
    AND (CreatedDate < :before OR (CreatedDate = :before AND Id < :id))
ORDER BY CreatedDate DESC, Id DESC
LIMIT :limit

-- name: count
SELECT COUNT() FROM Generated_Document__c WHERE Status__c = :status

-- name: count_due
SELECT COUNT() FROM Generated_Document__c
WHERE Status__c = 'QUEUED' AND (ScheduledAfter__c = null OR ScheduledAfter__c <= :now)

-- name: count_scheduled
SELECT COUNT() FROM Generated_Document__c WHERE Status__c = 'QUEUED' AND ScheduledAfter__c > :now

-- name: oldest_due
SELECT Id, CreatedDate
FROM Generated_Document__c
WHERE Status__c = 'QUEUED' AND ScheduledAfter__c = null
ORDER BY CreatedDate ASC
LIMIT 1

-- name: oldest_scheduled
SELECT Id, ScheduledAfter__c
FROM Generated_Document__c
WHERE Status__c = 'QUEUED' AND ScheduledAfter__c <= :now
ORDER BY ScheduledAfter__c ASC
LIMIT 1

-- name: awaited
SELECT COUNT() FROM Generated_Document__c
WHERE Status__c = 'PROCESSING'
    OR (Status__c = 'QUEUED' AND (ScheduledAfter__c = null OR ScheduledAfter__c <= :until))

-- name: records_of_hash
SELECT Id, Status__c, Template__c, Data__c, RequestHash__c, Attempts__c, LockVersion__c, Fence__c,
    OutputFileId__c, Error__c
FROM Generated_Document__c
WHERE RequestHash__c = :hash

-- name: count_of_batch
SELECT COUNT() FROM Generated_Document__c WHERE CorrelationId__c = :batch AND Status__c = :status

-- name: live_of_batch
SELECT Id
FROM Generated_Document__c
WHERE CorrelationId__c = :batch AND Status__c IN ('QUEUED', 'PROCESSING')
LIMIT :limit
