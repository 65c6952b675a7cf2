"""All that a copy of a database gives away, and the forms in which a secret may be in it."""

from __future__ import annotations

import base64
import subprocess
from pathlib import Path
from urllib.parse import quote

from tests.support.postgres import system_binaries
from tests.support.services import missing

PIECE_BYTES = 16


def dump(url: str) -> bytes:
    """A file of SQLite with its journal and free pages, or what pg_dump writes."""
    if url.startswith("sqlite:///"):
        path = Path(url.removeprefix("sqlite:///"))
        return b"".join(file.read_bytes() for file in (path, Path(f"{path}-wal")) if file.exists())
    binaries = system_binaries() or missing("PostgreSQL is not installed")
    done = subprocess.run([binaries / "pg_dump", url], capture_output=True, check=True)
    return done.stdout


def found(secret: str | bytes, text: bytes) -> list[bytes]:
    """The forms of the secret, or of a piece of it, that the text contains."""
    raw = secret.encode() if isinstance(secret, str) else secret
    pieces = [raw[i : i + PIECE_BYTES] for i in range(len(raw) - PIECE_BYTES + 1)]
    return [form for form in set().union(*map(_forms, [raw, *pieces])) if form in text]


def _forms(raw: bytes) -> set[bytes]:
    # Three bytes make four characters of base64, wherever they are in a longer text.
    whole = raw[: len(raw) // 3 * 3]
    plain = {
        raw,
        raw.hex().encode(),
        raw.hex().upper().encode(),
        base64.b64encode(whole),
        base64.urlsafe_b64encode(whole),
    }
    for_urls = {quote(each, safe="").encode() for each in plain}
    return plain | for_urls | {each.replace(b"/", b"\\/") for each in plain}
