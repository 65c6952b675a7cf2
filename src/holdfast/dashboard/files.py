"""Files of jobs and systems: shown or downloaded, and harmless to the browser either way."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from starlette.responses import FileResponse, Response

# A file runs nothing, loads nothing, and is in no frame of another site.
_POLICY: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none';"
    " form-action 'none'; frame-ancestors 'self'"
)
PDF: Final = "application/pdf"
PICTURES: Final = frozenset({"image/gif", "image/jpeg", "image/png", "image/svg+xml", "image/webp"})
TEXTS: Final = frozenset(
    {"application/json", "application/xml", "text/csv", "text/plain", "text/xml"}
)
_OTHER: Final = "application/octet-stream"
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]+")


def is_shown_in_place(media_type: str) -> bool:
    return media_type == PDF or media_type in PICTURES


def file_response(
    name: str, media_type: str, content: bytes | Path, *, is_shown: bool = False
) -> Response:
    """Send a file. Only pictures and PDF files can be shown; everything else is a download."""
    if not (is_shown_in_place(media_type) or media_type in TEXTS):
        media_type = _OTHER
    is_shown = is_shown and is_shown_in_place(media_type)
    # The browser's own viewer shows a PDF, and it does not start in a sandbox.
    sandbox = "" if media_type == PDF and is_shown else "sandbox; "
    is_text = media_type in TEXTS or media_type == "image/svg+xml"
    headers = {
        "content-type": f"{media_type}; charset=utf-8" if is_text else media_type,
        "content-disposition": (
            f'{"inline" if is_shown else "attachment"}; filename="{_UNSAFE.sub("_", name)}"'
        ),
        "content-security-policy": sandbox + _POLICY,
        "x-content-type-options": "nosniff",
        "x-frame-options": "SAMEORIGIN",
    }
    if isinstance(content, Path):
        return FileResponse(content, headers=headers)
    return Response(content, headers=headers)
