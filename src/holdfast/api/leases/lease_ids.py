"""Lease IDs: a job, the fence of its lease, and a proof of whose lease it is.

The proof saves a read for each lease that a worker renews. The first bit of the fence says whether
the job is encrypted, so that only the progress of such jobs costs a read.
"""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Final, NamedTuple
from uuid import UUID

from holdfast.domain.job import Lease

_PURPOSE: Final = b"lease\0"
_ID_BYTES: Final = 16
_FENCE_BYTES: Final = 8
_ENCRYPTED: Final = 1 << (8 * _FENCE_BYTES - 1)  # fences are smaller
_PROOF_BYTES: Final = 18  # so that the base64 needs no padding
_BYTES: Final = _ID_BYTES + _FENCE_BYTES + _PROOF_BYTES
CHARS: Final = _BYTES * 4 // 3


class Named(NamedTuple):
    """What a lease ID names."""

    lease: Lease
    encrypted: bool


def make_lease_id(secret: bytes, tenant: str | None, lease: Lease, *, encrypted: bool) -> str:
    """The ID of a lease, for callers of this tenant, or for callers that see all tenants."""
    fence = lease.fence | (_ENCRYPTED if encrypted else 0)
    body = lease.job_id.bytes + fence.to_bytes(_FENCE_BYTES, "big")
    return urlsafe_b64encode(body + _proof(secret, tenant, body)).decode()


def read_lease_id(secret: bytes, tenant: str | None, text: str) -> Named | None:
    """What it names, or None if it doesn't belong to these callers."""
    try:
        data = urlsafe_b64decode(text.encode("ascii"))
    except ValueError:
        return None
    body, proof = data[:-_PROOF_BYTES], data[-_PROOF_BYTES:]
    if len(data) != _BYTES or not hmac.compare_digest(proof, _proof(secret, tenant, body)):
        return None
    fence = int.from_bytes(body[_ID_BYTES:], "big")
    lease = Lease(UUID(bytes=body[:_ID_BYTES]), fence & ~_ENCRYPTED)
    return Named(lease, bool(fence & _ENCRYPTED))


def _proof(secret: bytes, tenant: str | None, body: bytes) -> bytes:
    owner = b"" if tenant is None else tenant.encode()
    return hmac.digest(secret, _PURPOSE + body + owner, "sha256")[:_PROOF_BYTES]
