"""The signing keys: each has an id, and one of them is active.

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

from holdfast import ConfigurationError
from holdfast_systems.passport.errors import SigningKeyMissing, ValidationError
from holdfast_systems.passport.limits import KEYS_FILE_BYTES_MAX, NAME_CHARS_MAX
from holdfast_systems.passport.names import is_line
from holdfast_systems.passport.read import read_limited

FILE = "BPC_SIGNING_KEYS_FILE"
TEXT = "BPC_SIGNING_KEYS"
_SEED_BYTES = 32


class Signature(NamedTuple):
    key_id: str
    value: bytes
    public_key: bytes


class _Content(msgspec.Struct, forbid_unknown_fields=True):
    active: str
    keys: dict[str, str]


class SigningKeys:
    """Signs with the active key. Its errors never contain a secret."""

    def __init__(self, active: str, keys: Mapping[str, Ed25519PrivateKey]) -> None:
        if active not in keys:
            raise SigningKeyMissing("the active signing key is not in the list of keys")
        self.active = active
        self._keys = dict(keys)

    def sign(self, receipt_hash: bytes) -> Signature:
        key = self._keys[self.active]
        public_key = key.public_key().public_bytes_raw()
        return Signature(self.active, key.sign(receipt_hash), public_key)

    def public_keys(self) -> dict[str, bytes]:
        """Return the public keys by id, for those who verify passports."""
        return {name: key.public_key().public_bytes_raw() for name, key in self._keys.items()}


def read_keys(content: str | bytes) -> SigningKeys:
    """Read the keys. Errors don't repeat any of the content."""
    try:
        found = msgspec.json.decode(content, type=_Content)
        keys = {name: _key(text) for name, text in found.keys.items()}
    except (ValueError, RecursionError):
        raise SigningKeyMissing("the signing keys can't be read") from None
    if not all(is_line(name) for name in keys):
        raise SigningKeyMissing(
            f"a signing key's id must have 1 to {NAME_CHARS_MAX} characters on one line"
        )
    return SigningKeys(found.active, keys)


def keys_from_environment(environment: Mapping[str, str] | None = None) -> SigningKeys:
    """Read the keys. Workers do so for every signature, so a new key needs no restart."""
    environment = os.environ if environment is None else environment
    if path := environment.get(FILE):
        try:
            content = read_limited(Path(path), KEYS_FILE_BYTES_MAX)
        except ValidationError as error:
            raise SigningKeyMissing(f"{FILE}: {error}") from None
        return read_keys(content)
    if text := environment.get(TEXT):
        return read_keys(text)
    raise SigningKeyMissing(f"there is no signing key: set {FILE} or {TEXT}")


def check_variables(environment: Mapping[str, str]) -> None:
    """Refuse a text of keys that would never be read."""
    if environment.get(FILE) and environment.get(TEXT):
        raise ConfigurationError(f"{TEXT} is set, but has no effect beside {FILE}: remove one")


def _key(text: str) -> Ed25519PrivateKey:
    seed = b64decode(text, validate=True)
    if len(seed) != _SEED_BYTES:
        raise ValueError(f"a key must have {_SEED_BYTES} bytes")
    return Ed25519PrivateKey.from_private_bytes(seed)
