"""Encrypt with AES-GCM, under one of several named keys.

Each value is bound to its place (its table, tenant and row), so that it can't be moved.
"""

from __future__ import annotations

import base64
import hmac
import re
import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from holdfast.domain.errors import CannotDecrypt, ConfigurationError, UnknownSecretKey

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_BYTES: Final = 32
KEY_ID: Final = re.compile(r"[A-Za-z0-9_.-]{1,40}")
_NONCE_BYTES: Final = 12
_TAG_BYTES: Final = 16
_DIGESTS: Final = b"holdfast digests"
_FORM: Final = f"name:key,name:key with keys of {KEY_BYTES} bytes in base64, the current one first"


class Encrypted(NamedTuple):
    """What to store of an encrypted text."""

    key_id: str
    data: bytes  # the nonce, then the text and its tag


class SecretCount(msgspec.Struct, frozen=True, kw_only=True):
    """How many secrets of a kind are under a key. Without a key ID, they are in plaintext."""

    kind: str
    key_id: str | None
    count: int
    is_current: bool
    is_known: bool  # whether this process can read them


class Reencrypted(msgspec.Struct, frozen=True, kw_only=True):
    """How many secrets were re-encrypted with the current key, and which are left."""

    count: int
    left: list[SecretCount]


class SecretKeys:
    """The first key encrypts; all of them decrypt."""

    def __init__(self, keys: Mapping[str, bytes]) -> None:
        self._ciphers = {name: _make_cipher(key) for name, key in keys.items()}
        self._digest_keys = [hmac.digest(key, _DIGESTS, "sha256") for key in keys.values()]
        self.ids = tuple(keys)
        self.current = self.ids[0]

    @classmethod
    def parse(cls, text: str, source: str) -> SecretKeys:
        """Read `name:key,name:key`. Errors quote none of it, because any part may be a key."""
        keys: dict[str, bytes] = {}
        for number, part in enumerate(text.split(","), 1):
            name, _, encoded = part.strip().partition(":")
            key = _decode(encoded)
            if not KEY_ID.fullmatch(name):
                problem = "needs a name of letters, digits, dots, dashes and underscores"
            elif key is None:
                problem = "has a key that is not base64"
            elif len(key) != KEY_BYTES:
                problem = f"has a key of {len(key)} bytes, not {KEY_BYTES}"
            elif name in keys:
                problem = "repeats a name"
            elif key in keys.values():
                problem = "repeats a key"
            else:
                keys[name] = key
                continue
            raise ConfigurationError(f"{source} must be {_FORM}; number {number} {problem}")
        return cls(keys)

    def encrypt(self, plain: bytes, *about: str) -> Encrypted:
        """Encrypt with the current key."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        cipher = self._ciphers[self.current]
        return Encrypted(self.current, nonce + cipher.encrypt(nonce, plain, _bound(about)))

    def decrypt(self, encrypted: Encrypted, *about: str) -> bytes:
        """Return the plaintext, or raise CannotDecrypt."""
        from cryptography.exceptions import InvalidTag

        key_id, data = encrypted
        cipher = self._ciphers.get(key_id)
        if cipher is None:
            raise UnknownSecretKey(key_id)
        try:
            if len(data) < _NONCE_BYTES + _TAG_BYTES:
                raise InvalidTag
            return cipher.decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], _bound(about))
        except InvalidTag:
            raise CannotDecrypt(
                f"this can't be decrypted with the secret key {key_id!r}: it was changed or moved,"
                " or was encrypted with another key of that name"
            ) from None

    def digests(self, text: bytes, *about: str) -> tuple[bytes, ...]:
        """Return a hash of the text under each key, the current one first. Nobody can guess the
        text from a hash without the keys."""
        whole = _bound(about) + text
        return tuple(hmac.digest(key, whole, "sha256") for key in self._digest_keys)


def make_keys(name: str | None = None) -> str:
    """Return a new key with its name, in the form that SecretKeys.parse reads."""
    name = f"k{secrets.token_hex(4)}" if name is None else name
    if not KEY_ID.fullmatch(name):
        raise ConfigurationError(
            f"{name!r} can't be the name of a secret key: use 1 to 40 letters, digits, dots, dashes"
            " and underscores"
        )
    return f"{name}:{base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()}"


def _decode(encoded: str) -> bytes | None:
    try:
        return base64.b64decode(encoded, validate=True)
    except ValueError:
        return None


def _bound(about: tuple[str, ...]) -> bytes:
    parts = [part.encode() for part in about]
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


def _make_cipher(key: bytes) -> AESGCM:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError as error:
        raise ConfigurationError(
            "encryption needs the cryptography package: pip install 'holdfast[secrets]'"
        ) from error
    return AESGCM(key)
