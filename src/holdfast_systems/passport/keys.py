"""The keys that sign passports: each has an id, one of them signs, all of them are known.

A file named by BPC_SIGNING_KEYS_FILE, or the variable BPC_SIGNING_KEYS, holds

    {"active": "2026-a", "keys": {"2026-a": "<32 bytes in base64>", "2025-b": "..."}}
"""

from __future__ import annotations

import os
from base64 import b64decode
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from holdfast_systems.passport.errors import SigningKeyMissing
from holdfast_systems.passport.limits import KEYS_FILE_BYTES_MAX, NAME_CHARS_MAX

FILE = "BPC_SIGNING_KEYS_FILE"
TEXT = "BPC_SIGNING_KEYS"
_SEED_BYTES = 32


class Signature(NamedTuple):
    key_id: str
    value: bytes


class _Content(msgspec.Struct, forbid_unknown_fields=True):
    active: str
    keys: dict[str, str]


class SigningKeys:
    """Signs with the active key. Nothing that it says shows a secret."""

    def __init__(self, active: str, keys: Mapping[str, Ed25519PrivateKey]) -> None:
        if active not in keys:
            raise SigningKeyMissing(f"the active key {active!r} is not among the signing keys")
        self.active = active
        self._keys = dict(keys)

    def sign(self, receipt_hash: bytes) -> Signature:
        return Signature(self.active, self._keys[self.active].sign(receipt_hash))

    def public_keys(self) -> dict[str, bytes]:
        """What the receivers of passports may trust, by key id."""
        return {name: key.public_key().public_bytes_raw() for name, key in self._keys.items()}


def read_keys(content: str | bytes) -> SigningKeys:
    """Read the keys; the text of an error tells no part of the content."""
    try:
        found = msgspec.json.decode(content, type=_Content)
        keys = {name: _key(text) for name, text in found.keys.items()}
    except (ValueError, RecursionError):
        raise SigningKeyMissing("the signing keys can't be read") from None
    if any(not 1 <= len(name) <= NAME_CHARS_MAX for name in keys):
        raise SigningKeyMissing(f"the id of a signing key has 1 to {NAME_CHARS_MAX} characters")
    return SigningKeys(found.active, keys)


def keys_from_environment(environment: Mapping[str, str] | None = None) -> SigningKeys:
    """Read the keys anew, so that a new one is used without a restart."""
    environment = os.environ if environment is None else environment
    if path := environment.get(FILE):
        return read_keys(_read(Path(path)))
    if text := environment.get(TEXT):
        return read_keys(text)
    raise SigningKeyMissing(f"neither {FILE} nor {TEXT} is set")


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(KEYS_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise SigningKeyMissing(f"{FILE} can't be read: {error.strerror}") from None
    if len(content) > KEYS_FILE_BYTES_MAX:
        raise SigningKeyMissing(f"{FILE} is larger than {KEYS_FILE_BYTES_MAX} bytes")
    return content


def _key(text: str) -> Ed25519PrivateKey:
    seed = b64decode(text, validate=True)
    if len(seed) != _SEED_BYTES:
        raise ValueError(f"a key has {_SEED_BYTES} bytes")
    return Ed25519PrivateKey.from_private_bytes(seed)
