"""The SCRAM verifier that PostgreSQL stores for a password (RFC 5802, RFC 7677). It is computed
here, so that the password itself reaches neither the server nor its logs."""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64encode
from typing import Final

ITERATIONS: Final = 4096  # PostgreSQL's default; a random password needs no more
SALT_BYTES: Final = 16


def scram_verifier(password: str, salt: bytes) -> str:
    """`password` must be ASCII: anything else would have to be normalized first."""
    salted = hashlib.pbkdf2_hmac("sha256", password.encode("ascii"), salt, ITERATIONS)
    stored_key = hashlib.sha256(_keyed(salted, b"Client Key")).digest()
    server_key = _keyed(salted, b"Server Key")
    return f"SCRAM-SHA-256${ITERATIONS}:{_text(salt)}${_text(stored_key)}:{_text(server_key)}"


def _keyed(key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, "sha256")


def _text(value: bytes) -> str:
    return b64encode(value).decode("ascii")
