"""How the arguments, results and progress of encrypted jobs are stored.

They are JSON that names its key: {"$encrypted": {"key": "k1", "data": "..."}}. Each is bound to its
purpose, its tenant and the job's name. It is not bound to one job, because a requeue copies it to a
new job without the key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, Final, Literal, Protocol

import msgspec

from holdfast.domain.encryption import Encrypted
from holdfast.domain.errors import CannotDecrypt
from holdfast.domain.job import Claimed, Job, NewJob, Watched

Purpose = Literal["arguments", "result", "progress", "answer"]
Encrypt = Callable[[Purpose, bytes], bytes]

CANNOT_DECRYPT: Final = "CANNOT_DECRYPT"
ENCRYPTED: Final = b'{"$encrypted":'  # encrypted arguments, and only they, begin with this
_FIELD: Final = "$encrypted"
_VALUES: Final[tuple[Purpose, ...]] = ("arguments", "result", "progress")


class EncryptedValue(msgspec.Struct, frozen=True, kw_only=True):
    """Stands for a value of a job that this process can't decrypt."""

    encrypted: Literal[True] = True
    key: str

    def __str__(self) -> str:
        return f"encrypted with key {self.key}"


class _Contents(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    key: str
    data: bytes


class _Stored(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"inner": _FIELD}):
    inner: _Contents


_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder(_Stored)
_JSON: Final = msgspec.json.Decoder()


def is_encrypted(data: bytes) -> bool:
    """Whether JSON has exactly the form of an encrypted value, which is reserved."""
    return data.startswith(ENCRYPTED) and _read(data) is not None


def _read(data: bytes) -> _Contents | None:
    try:
        return _DECODER.decode(data).inner
    except ValueError:
        return None


def _find(value: Any) -> _Contents | None:
    """The same for a value that was decoded from JSON."""
    if type(value) is not dict or _FIELD not in value:
        return None
    try:
        return msgspec.convert(value, _Stored).inner
    except ValueError:
        return None


class Witness:
    """Whether a value was decrypted in a block, by its own task or one that it started."""

    has_decrypted = False


_witness: ContextVar[Witness | None] = ContextVar("holdfast_witness", default=None)


@contextmanager
def witnessed() -> Iterator[Witness]:
    witness = Witness()
    before = _witness.set(witness)
    try:
        yield witness
    finally:
        _witness.reset(before)


class Keys(Protocol):
    """The secret keys of a process: `hf.secrets`. Without any, `decrypt` raises CannotDecrypt, and
    the other methods raise ConfigurationError."""

    @property
    def current(self) -> str: ...

    def encrypt(self, plain: bytes, *about: str) -> Encrypted: ...

    def decrypt(self, encrypted: Encrypted, *about: str) -> bytes: ...

    def digests(self, text: bytes, *about: str) -> tuple[bytes, ...]: ...


class JobCipher:
    """Encrypts and decrypts the values of jobs, with the keys of this process."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys

    def encrypt(self, tenant: str, name: str, purpose: Purpose, clear: bytes) -> bytes:
        key_id, data = self._keys.encrypt(clear, *_about(tenant, name, purpose))
        return _ENCODER.encode(_Stored(_Contents(key_id, data)))

    def encryptor(self, tenant: str, name: str) -> Encrypt:
        """Return a function that encrypts the values of a job. Without a key, raise right away."""
        _ = self._keys.current
        return partial(self.encrypt, tenant, name)

    def decrypt(self, tenant: str, name: str, purpose: Purpose, data: bytes) -> bytes:
        """Return the value, or raise CannotDecrypt. A plaintext value is returned unchanged."""
        contents = _read(data) if data.startswith(ENCRYPTED) else None
        return data if contents is None else self._decrypt(tenant, name, purpose, contents)

    def decrypted(self, job: Claimed) -> Claimed:
        """The job with its arguments in plaintext."""
        arguments = self.decrypt(job.tenant, job.name, "arguments", job.arguments)
        return msgspec.structs.replace(job, arguments=arguments)

    def encrypted(self, job: NewJob) -> NewJob:
        """The job as it is stored. A repeated request is recognized by its body's hash under every
        key of this process, and by the plain hash: the job may not have been encrypted when its
        idempotency key was first used."""
        arguments = self.encrypt(job.tenant, job.name, "arguments", job.arguments)
        if job.body_hash is None:
            return msgspec.structs.replace(job, arguments=arguments)
        about = ("jobs.body", job.tenant, job.idempotency_key or "")
        current, *others = self._keys.digests(job.body_hash, *about)
        return msgspec.structs.replace(
            job,
            arguments=arguments,
            body_hash=current,
            other_hashes=(*others, job.body_hash),
        )

    def shown(self, job: Job) -> Job:
        """The job with its values in plaintext, or EncryptedValue for those that can't be decrypted
        here."""
        found = {name: _find(getattr(job, name)) for name in _VALUES}
        values = {
            name: self._shown(job.tenant, job.name, name, contents)
            for name, contents in found.items()
            if contents is not None
        }
        return msgspec.structs.replace(job, encrypted=True, **values) if values else job

    def shown_watched(self, job: Watched) -> Watched:
        contents = _find(job.status.progress)
        if contents is None:
            return job
        progress = self._shown(job.tenant, job.name, "progress", contents)
        return job._replace(status=msgspec.structs.replace(job.status, progress=progress))

    def _shown(self, tenant: str, name: str, purpose: Purpose, contents: _Contents) -> Any:
        try:
            clear = self._decrypt(tenant, name, purpose, contents)
        except CannotDecrypt:
            return EncryptedValue(key=contents.key)
        if (witness := _witness.get()) is not None:
            witness.has_decrypted = True
        return _JSON.decode(clear)

    def _decrypt(self, tenant: str, name: str, purpose: Purpose, contents: _Contents) -> bytes:
        encrypted = Encrypted(contents.key, contents.data)
        return self._keys.decrypt(encrypted, *_about(tenant, name, purpose))


def _about(tenant: str, name: str, purpose: Purpose) -> tuple[str, ...]:
    return f"jobs.{purpose}", tenant, name
