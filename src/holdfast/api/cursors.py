"""List cursors: where the next page starts. A cursor is bound to its filter."""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Final
from urllib.parse import urlencode
from uuid import UUID

from starlette.requests import Request

from holdfast.api.answers import encode
from holdfast.api.queries import bad_parameter

_VERSION: Final = b"\1"
_DIGEST_BYTES: Final = 8
_ID_BYTES: Final = 16


def make_cursor(after: UUID, *filter: object) -> str:
    """Return an opaque text that `read_cursor` turns back into the ID. It is not a secret."""
    return urlsafe_b64encode(_VERSION + _digest(filter) + after.bytes).decode().rstrip("=")


def read_cursor(text: str | None, *filter: object) -> UUID | None:
    """Return the ID after which the page starts. A cursor of another filter is rejected."""
    if text is None:
        return None
    try:
        data = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError:
        data = b""
    start = _VERSION + _digest(filter)
    if len(data) != len(start) + _ID_BYTES or not data.startswith(start):
        raise bad_parameter(
            "cursor", "does not belong to this list and filter; start again without it"
        )
    return UUID(bytes=data[len(start) :])


def next_page(
    request: Request, after: UUID | None, *filter: object
) -> tuple[str | None, dict[str, str]]:
    """Return the path of the next page and its Link header; neither on the last page."""
    if after is None:
        return None, {}
    kept = [pair for pair in request.query_params.multi_items() if pair[0] != "cursor"]
    query = urlencode([*kept, ("cursor", make_cursor(after, *filter))])
    following = f"{request.url.path}?{query}"
    return following, {"link": f'<{following}>; rel="next"'}


def _digest(filter: tuple[object, ...]) -> bytes:
    return hashlib.blake2b(encode(filter), digest_size=_DIGEST_BYTES).digest()
