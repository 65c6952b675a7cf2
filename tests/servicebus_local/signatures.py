"""Shared access signatures."""

from __future__ import annotations

import hmac
from base64 import b64encode
from urllib.parse import quote_plus

from holdfast.servicebus_local.server import KEY


def signed(audience: str, *, expires_seconds: int) -> str:
    resource = quote_plus(audience)
    text = f"{resource}\n{expires_seconds}".encode()
    signature = b64encode(hmac.digest(KEY.key.encode(), text, "sha256"))
    return (
        f"SharedAccessSignature sr={resource}&sig={quote_plus(signature)}"
        f"&se={expires_seconds}&skn={KEY.name}"
    )
