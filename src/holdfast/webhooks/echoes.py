"""Hide a subscription's secrets in its receiver's responses.

A preset may send a secret, for example as a token, and some receivers repeat what they get. The
attempt log must not reveal it.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from itertools import chain
from typing import Final
from urllib.parse import quote

HIDDEN: Final = b"***"


class Echoes:
    """Finds secrets and their keys: raw, in hex or base64, or escaped for JSON or URLs."""

    def __init__(self, secrets: Iterable[str], keys: Iterable[bytes]) -> None:
        texts = {secret.encode() for secret in secrets}
        forms = texts.union(*map(_forms, chain(texts, keys)))
        self._longest_first = sorted(forms, key=len, reverse=True)

    def hide(self, data: bytes, bytes_max: int) -> bytes:
        """Hide the secrets in the first `bytes_max` bytes, even one that is cut off there."""
        longest = max(map(len, self._longest_first), default=0)
        return self._hidden(data[: bytes_max + longest])[:bytes_max]

    def hide_text(self, text: str) -> str:
        """Hide the secrets in the text."""
        written = text.encode("utf-8", "surrogatepass")
        hidden = self._hidden(written)
        return text if hidden == written else hidden.decode("utf-8", "replace")

    def _hidden(self, data: bytes) -> bytes:
        for form in self._longest_first:
            data = data.replace(form, HIDDEN)
        return data


def _forms(raw: bytes) -> set[bytes]:
    in_base64 = {base64.b64encode(raw), base64.urlsafe_b64encode(raw)}
    in_base64 |= {each.rstrip(b"=") for each in in_base64}
    plain = {raw, *in_base64, raw.hex().encode(), raw.hex().upper().encode()}
    for_urls = {quote(each, safe="").encode() for each in plain}
    for_json = {each.replace(b"/", b"\\/") for each in plain}
    return plain | for_urls | for_json


NOTHING: Final = Echoes((), ())
