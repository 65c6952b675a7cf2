"""Encrypt what a copy of the database must not reveal.

The keys are in HOLDFAST_SECRET_KEYS. In development on SQLite, they are in a file next to the
database.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import msgspec

from holdfast.domain.encryption import Encrypted, Reencrypted, SecretCount, SecretKeys, make_keys
from holdfast.domain.errors import CannotDecrypt, ConfigurationError, UnknownSecretKey
from holdfast.domain.scope import all_tenants
from holdfast.operations.kept_files import read_or_make
from holdfast.runtime.blocking import RunSync, blocking
from holdfast.transactions.tables import Tables

VARIABLE: Final = "HOLDFAST_SECRET_KEYS"
BATCH_ROWS: Final = 100
_SQLITE: Final = "sqlite:///"
_FIRST: Final = UUID(int=0)


class _Count(msgspec.Struct, frozen=True):
    key_id: str | None
    count: int


class _Row(msgspec.Struct, frozen=True):
    """A secret that is in plaintext, or under a key other than the current one."""

    id: UUID
    tenant: str
    key_id: str | None
    ciphertext: bytes | None
    clear: str | None


@dataclass(frozen=True, slots=True)
class _Kind:
    name: str
    tables: Tables
    counts: str
    stale: str | None
    replace: str | None


class Secrets:
    """`hf.secrets`: encrypt and decrypt with the secret keys of this process, and rotate them."""

    def __init__(
        self,
        database: Callable[[], str],
        transaction: Callable[..., AbstractAsyncContextManager[Any]],
        run_sync: RunSync,
    ) -> None:
        self._database = database
        self._transaction = transaction
        self._run_sync = run_sync
        self._kinds: dict[str, _Kind] = {}
        self._read: tuple[str | None, str, SecretKeys] | None = None

    def encrypt(self, plain: bytes, *about: str) -> Encrypted:
        """Encrypt with the current key, and bind the result to the words in `about`: decrypting
        takes the same words. Pass the table, the tenant and the row."""
        return self._keys().encrypt(plain, *about)

    def decrypt(self, encrypted: Encrypted, *about: str) -> bytes:
        """Return the plaintext, or raise CannotDecrypt; UnknownSecretKey if this process doesn't
        have the key."""
        keys = self._keys_if_any()
        if keys is None:
            raise UnknownSecretKey(encrypted.key_id)
        return keys.decrypt(encrypted, *about)

    def digests(self, text: bytes, *about: str) -> tuple[bytes, ...]:
        """Return a hash of the text under each key, the current one first. Use it to compare texts
        that would be too easy to guess from a plain hash."""
        return self._keys().digests(text, *about)

    def has_key(self, key_id: str) -> bool:
        """Whether this process has the key."""
        keys = self._keys_if_any()
        return keys is not None and key_id in keys.ids

    @property
    def current(self) -> str:
        """The name of the key that encrypts."""
        return self._keys().current

    def _keys_if_any(self) -> SecretKeys | None:
        """A process without usable keys can still do what needs none."""
        try:
            return self._keys()
        except ConfigurationError:
            return None

    def _keys(self) -> SecretKeys:
        given, database = os.environ.get(VARIABLE), self._database()
        if self._read is None or self._read[:2] != (given, database):
            self._read = given, database, _read_keys(given, database)
        return self._read[2]

    def add(
        self,
        kind: str,
        tables: Tables,
        *,
        counts: str,
        stale: str | None = None,
        replace: str | None = None,
    ) -> None:
        """Have `status` count the secrets of a kind, and `reencrypt` re-encrypt them.

        The other arguments name statements of `tables`. `counts` returns `key_id` and `count`; a
        `key_id` of NULL stands for plaintext rows. `stale` takes `key_id`, `after` and `rows_max`,
        and returns rows that are not under that key and whose `id` is after `after`, ordered by
        `id`: `id`, `tenant`, `key_id`, `ciphertext` and `clear`. `replace` takes `id`, `old`,
        `key_id` and `ciphertext`, and changes the row if its ciphertext is still `old`. Each value
        is bound to the kind, its tenant and its row's ID.
        """
        if kind in self._kinds:
            raise ConfigurationError(f"secrets of the kind {kind!r} are already declared")
        self._kinds[kind] = _Kind(kind, tables, counts, stale, replace)

    @property
    def _lasting(self) -> list[_Kind]:
        """What is re-encrypted. Other kinds expire on their own, and counting them takes a scan."""
        return [kind for kind in self._kinds.values() if kind.stale is not None]

    @property
    def can_last(self) -> bool:
        """Whether there are secrets that `reencrypt` re-encrypts."""
        return bool(self._lasting)

    async def status(self) -> list[SecretCount]:
        """Count the secrets of each kind, by key."""
        with all_tenants():
            async with self._transaction(read_only=True) as connection:
                return await self._count(connection, self._kinds.values())

    async def count_lasting(self, connection: Any) -> list[SecretCount]:
        """Count on this connection what `reencrypt` re-encrypts."""
        return await self._count(connection, self._lasting)

    async def _count(self, connection: Any, kinds: Iterable[_Kind]) -> list[SecretCount]:
        """Count the secrets whose tables are up to date."""
        keys = self._keys_if_any()
        current = None if keys is None else keys.current
        found = []
        for kind in kinds:
            if not await kind.tables.missing(connection):
                rows = await kind.tables.on(connection).all(kind.counts, _Count)
                found += [(kind.name, row.key_id, row.count) for row in rows]
        return [
            SecretCount(
                kind=kind,
                key_id=key_id,
                count=count,
                is_current=key_id is not None and key_id == current,
                is_known=key_id is None or self.has_key(key_id),
            )
            for kind, key_id, count in found
        ]

    async def reencrypt(
        self,
        *,
        batch_rows: int = BATCH_ROWS,
        progress: Callable[[str, int], None] | None = None,
    ) -> Reencrypted:
        """Re-encrypt all secrets with the current key.

        Safe to repeat, and safe while others read and change secrets. Secrets that can't be
        decrypted here stay as they are. After each batch, `progress` gets the kind and the number
        so far.
        """
        total = 0
        for kind in self._lasting:
            done, after = 0, _FIRST
            while True:
                rows = await self._stale(kind, after, batch_rows)
                if not rows:
                    break
                done, after = done + await self._replace(kind, rows), rows[-1].id
                if progress is not None:
                    progress(kind.name, done)
            total += done
        with all_tenants():
            async with self._transaction(read_only=True) as connection:
                counts = await self.count_lasting(connection)
        return Reencrypted(count=total, left=[each for each in counts if not each.is_current])

    async def _stale(self, kind: _Kind, after: UUID, rows_max: int) -> list[_Row]:
        assert kind.stale is not None
        with all_tenants():
            async with self._transaction(read_only=True) as connection:
                return await kind.tables.on(connection).all(
                    kind.stale, _Row, key_id=self.current, after=after, rows_max=rows_max
                )

    async def _replace(self, kind: _Kind, rows: list[_Row]) -> int:
        assert kind.replace is not None
        done = 0
        with all_tenants():
            async with self._transaction() as connection:
                statements = kind.tables.on(connection)
                for row in rows:
                    made = self._under_current_key(kind, row)
                    if made is not None:
                        done += await statements.execute(
                            kind.replace,
                            id=row.id,
                            old=row.ciphertext,
                            key_id=made.key_id,
                            ciphertext=made.data,
                        )
        return done

    def _under_current_key(self, kind: _Kind, row: _Row) -> Encrypted | None:
        about = (kind.name, row.tenant, str(row.id))
        if row.key_id is None:
            assert row.clear is not None
            return self.encrypt(row.clear.encode(), *about)
        assert row.ciphertext is not None
        try:
            plain = self.decrypt(Encrypted(row.key_id, row.ciphertext), *about)
        except CannotDecrypt:
            return None
        return self.encrypt(plain, *about)

    status_sync = blocking(status)
    reencrypt_sync = blocking(reencrypt)


def _read_keys(given: str | None, database: str) -> SecretKeys:
    if given is not None:
        return SecretKeys.parse(given, VARIABLE)
    if not database.startswith(_SQLITE):
        raise ConfigurationError(
            f"secrets can't be encrypted, because {VARIABLE} is not set; generate a key with:"
            " holdfast secrets new-key; keep it outside the database, and set it for every process"
        )
    file = f"{database.removeprefix(_SQLITE)}.secret-keys"
    found = read_or_make(file, make_keys, what="the secret keys", variable=VARIABLE)
    return SecretKeys.parse(found.decode("ascii", "replace").strip(), file)
