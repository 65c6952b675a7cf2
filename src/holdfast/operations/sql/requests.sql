-- name: claim_request
INSERT INTO holdfast.api_requests AS known (
    scope, key, fingerprint, token, in_flight_until, expires_at
)
VALUES (
    :scope, :key, :fingerprint, :token, holdfast.in_seconds(:in_flight_seconds),
    holdfast.in_seconds(:kept_seconds)
)
ON CONFLICT (scope, key) DO UPDATE SET
    fingerprint = excluded.fingerprint,
    token = excluded.token,
    in_flight_until = excluded.in_flight_until,
    expires_at = excluded.expires_at,
    status = NULL,
    headers = NULL,
    body = NULL
WHERE known.expires_at <= now()
    OR (
        known.status IS NULL AND known.in_flight_until <= now()
        AND known.fingerprint = excluded.fingerprint
    )

-- name: find_request
SELECT fingerprint, status, headers, body FROM holdfast.api_requests
WHERE scope = :scope AND key = :key

-- name: answer_request
UPDATE holdfast.api_requests
SET status = :status, headers = :headers, body = :body,
    expires_at = holdfast.in_seconds(:kept_seconds)
WHERE scope = :scope AND key = :key AND token = :token AND status IS NULL
