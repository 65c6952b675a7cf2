"""Claims-based security: who may use which queue, shown by a signed token."""

from __future__ import annotations

import hmac
from base64 import b64encode
from dataclasses import dataclass
from hashlib import sha256
from urllib.parse import unquote_plus

from holdfast.servicebus_local.namespace import path_of
from holdfast.servicebus_local.refusals import ArgumentError, Unauthorized

PREFIX = "SharedAccessSignature "


@dataclass(frozen=True)
class SharedKey:
    name: str
    key: str

    def check(self, token: str, now_seconds: float) -> str:
        """The path of what the token is for, or raise."""
        if not token.startswith(PREFIX):
            raise Unauthorized("Only shared access signatures are accepted here.")
        parts = dict(part.partition("=")[::2] for part in token.removeprefix(PREFIX).split("&"))
        if not {"sr", "sig", "se", "skn"} <= parts.keys():
            raise ArgumentError("The token lacks one of sr, sig, se and skn.")
        if unquote_plus(parts["skn"]) != self.name or not self._is_signed(parts):
            raise Unauthorized("InvalidSignature: The token has an invalid signature.")
        if not parts["se"].isdecimal() or int(parts["se"]) <= now_seconds:
            raise Unauthorized("ExpiredToken: The token is expired.")
        return path_of(unquote_plus(parts["sr"]))

    def _is_signed(self, parts: dict[str, str]) -> bool:
        text = f"{parts['sr']}\n{parts['se']}".encode()
        signature = b64encode(hmac.new(self.key.encode(), text, sha256).digest())
        return hmac.compare_digest(signature, unquote_plus(parts["sig"]).encode())


def covers(claims: set[str], path: str) -> bool:
    """May a client with tokens for these paths use that one? A token for a queue is one for its
    parts, too; the empty path is the namespace."""
    return any(not claim or path == claim or path.startswith(f"{claim}/") for claim in claims)
