-- A bucket has been sampled if it has a row for all queues together. A queue without a row had no
-- jobs then.

-- name: sampled
SELECT 1 FROM holdfast.samples
WHERE seconds = 10 AND queue = '' AND at = :bucket AND ready IS NOT NULL

-- name: samples
SELECT
    marked.at / :step * :step AS at, count(*) * :seconds AS covered_seconds,
    max(CASE WHEN marked.ready IS NOT NULL THEN coalesce(own.ready, 0) END) AS ready,
    max(CASE WHEN marked.ready IS NOT NULL THEN coalesce(own.scheduled, 0) END) AS scheduled,
    max(CASE WHEN marked.ready IS NOT NULL THEN coalesce(own.parked, 0) END) AS parked,
    max(CASE WHEN marked.ready IS NOT NULL THEN coalesce(own.running, 0) END) AS running,
    max(CASE WHEN marked.ready IS NOT NULL THEN coalesce(own.oldest_seconds, 0) END)
    AS oldest_seconds,
    CAST(sum(coalesce(own.succeeded, 0)) AS bigint) AS succeeded,
    CAST(sum(coalesce(own.retried, 0)) AS bigint) AS retried,
    CAST(sum(coalesce(own.failed, 0)) AS bigint) AS failed,
    CAST(sum(coalesce(own.canceled, 0)) AS bigint) AS canceled,
    sum(own.p50_seconds * own.timed) / nullif(sum(own.timed), 0) AS p50_seconds,
    max(CASE WHEN own.timed > 0 THEN own.p95_seconds END) AS p95_seconds
FROM holdfast.samples AS marked
LEFT JOIN holdfast.samples AS own
    ON own.seconds = marked.seconds AND own.at = marked.at AND own.queue = :queue
WHERE marked.seconds = :seconds AND marked.queue = '' AND marked.at >= :since
    AND marked.at < :until
GROUP BY 1
ORDER BY 1

-- name: samples_by_queue
SELECT
    queue, at / :step * :step AS at, count(*) * :seconds AS covered_seconds,
    max(coalesce(ready, 0)) AS ready, max(scheduled) AS scheduled, max(parked) AS parked,
    max(running) AS running, max(oldest_seconds) AS oldest_seconds,
    CAST(sum(succeeded) AS bigint) AS succeeded, CAST(sum(retried) AS bigint) AS retried,
    CAST(sum(failed) AS bigint) AS failed, CAST(sum(canceled) AS bigint) AS canceled,
    sum(p50_seconds * timed) / nullif(sum(timed), 0) AS p50_seconds,
    max(CASE WHEN timed > 0 THEN p95_seconds END) AS p95_seconds
FROM holdfast.samples
WHERE seconds = :seconds AND at >= :since AND at < :until
GROUP BY 1, 2
ORDER BY 1, 2

-- name: waits
SELECT at / :step * :step AS at, up_to_ms, CAST(sum(jobs) AS bigint) AS jobs
FROM holdfast.sample_waits
WHERE seconds = :seconds AND queue = :queue AND at >= :since AND at < :until
GROUP BY 1, 2

-- name: waits_by_queue
SELECT queue, at / :step * :step AS at, up_to_ms, CAST(sum(jobs) AS bigint) AS jobs
FROM holdfast.sample_waits
WHERE seconds = :seconds AND at >= :since AND at < :until
GROUP BY 1, 2, 3
