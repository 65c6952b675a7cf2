"""Lease IDs: a job, the fence of its lease, and a proof of whose lease it is.

The proof saves a read for each lease that a worker renews.
"""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Final
from uuid import UUID

from holdfast.domain.job import Lease

_PURPOSE: Final = b"lease\0"
_ID_BYTES: Final = 16
_FENCE_BYTES: Final = 8
_PROOF_BYTES: Final = 18  # so that the base64 needs no padding
_BYTES: Final = _ID_BYTES + _FENCE_BYTES + _PROOF_BYTES
CHARS: Final = _BYTES * 4 // 3


def make_lease_id(secret: bytes, tenant: str | None, lease: Lease) -> str:
    """The ID of a lease, for callers of this tenant, or for callers that see all tenants."""
    body = lease.job_id.bytes + lease.fence.to_bytes(_FENCE_BYTES, "big")
    return urlsafe_b64encode(body + _proof(secret, tenant, body)).decode()


def read_lease_id(secret: bytes, tenant: str | None, text: str) -> Lease | None:
    """The lease, or None if it doesn't belong to these callers."""
    try:
        data = urlsafe_b64decode(text.encode("ascii"))
    except ValueError:
        return None
    body, proof = data[:-_PROOF_BYTES], data[-_PROOF_BYTES:]
    if len(data) != _BYTES or not hmac.compare_digest(proof, _proof(secret, tenant, body)):
        return None
    return Lease(UUID(bytes=body[:_ID_BYTES]), int.from_bytes(body[_ID_BYTES:], "big"))


def _proof(secret: bytes, tenant: str | None, body: bytes) -> bytes:
    owner = b"" if tenant is None else tenant.encode()
    return hmac.digest(secret, _PURPOSE + body + owner, "sha256")[:_PROOF_BYTES]
