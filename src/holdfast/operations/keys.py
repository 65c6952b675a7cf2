"""Create, list, rotate and revoke the keys of the HTTP API."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import datetime
from logging import ERROR, WARNING
from typing import Final

import msgspec

from holdfast.domain.audit import Actor
from holdfast.domain.errors import ConfigurationError, KeyNotFound, WrongState
from holdfast.domain.keys import (
    ACTIVE,
    SECRET_BYTES,
    Key,
    NewKey,
    check_new,
    fingerprint,
    hashed,
    id_of,
    is_id,
    key_text,
)
from holdfast.domain.limits import DELAY_SECONDS_MAX
from holdfast.domain.texts import check_range
from holdfast.observability import logs
from holdfast.operations.audit import Audit
from holdfast.operations.desk import Desk
from holdfast.operations.own_tables import OwnTables
from holdfast.operations.pepper import VARIABLE, Pepper
from holdfast.runtime.blocking import blocking
from holdfast.transactions.tables import Statements

OVERLAP_SECONDS: Final = 86400.0


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A usable key, and the database's time when it was read."""

    key: Key
    now: datetime


class _Row(Key, frozen=True, kw_only=True):
    scopes: str  # type: ignore[assignment]
    now: datetime

    def as_key(self) -> Key:
        values = {name: getattr(self, name) for name in Key.__struct_fields__}
        return Key(**{**values, "scopes": tuple(self.scopes.split())})


class _Checked(_Row, frozen=True, kw_only=True):
    pepper: str
    is_right: bool


class Keys:
    """`hf.keys`: create, list, rotate and revoke the keys of the HTTP API.

    Each change adds an entry to the audit log, in the same transaction. `by` says who made it.
    """

    def __init__(self, desk: Desk, own: OwnTables, pepper: Pepper, audit: Audit) -> None:
        self._own = own
        self._pepper = pepper
        self._audit = audit
        self._run_sync = desk.run_sync

    async def create(
        self,
        name: str,
        *,
        scopes: Sequence[str],
        tenant: str | None = None,
        expires_in_seconds: float | None = None,
        requests_per_second: float | None = None,
        by: str | Actor | None = None,
    ) -> NewKey:
        """Create a key. Its text, `.key`, is returned only here; the database stores only a hash.

        The scopes are read, enqueue, operate, work and admin. Without a tenant, the key sees all
        tenants. `requests_per_second` replaces the server's rate limit.
        """
        checked = check_new(name, tenant, scopes, expires_in_seconds, requests_per_second)
        pepper = await self._pepper.get()
        actor = Actor.of(by)
        async with self._own.transaction() as (connection, statements):
            made = await _insert(
                statements,
                pepper,
                name=name,
                tenant=tenant,
                scopes=" ".join(checked),
                expires_in_seconds=expires_in_seconds,
                requests_per_second=requests_per_second,
                created_by=actor.name,
            )
            await self._audit.record_on(connection, actor, "key.create", made.id, jobs=0)
        return made

    async def list(self, *, ended: bool = False) -> Sequence[Key]:
        """Return active keys, oldest first; with `ended`, also expired and revoked ones."""
        async with self._own.transaction(read_only=True) as (_, statements):
            return [row.as_key() for row in await statements.all("list_keys", _Row, ended=ended)]

    async def get(self, key_id: str) -> Key:
        """Return the key with this ID, or raise KeyNotFound."""
        async with self._own.transaction(read_only=True) as (_, statements):
            return (await _find(statements, key_id)).as_key()

    async def rotate(
        self,
        key_id: str,
        *,
        overlap_seconds: float = OVERLAP_SECONDS,
        by: str | Actor | None = None,
    ) -> NewKey:
        """Create a key with the same rights and lifetime. The old key expires after the overlap.

        Raises WrongState if the old key is revoked, expired or already rotated.
        """
        check_range("overlap_seconds", overlap_seconds, 0, DELAY_SECONDS_MAX)
        pepper = await self._pepper.get()
        actor = Actor.of(by)
        async with self._own.transaction() as (connection, statements):
            old = await _find(statements, key_id)
            lifetime = None if old.expires_at is None else old.expires_at - old.created_at
            made = await _insert(
                statements,
                pepper,
                name=old.name,
                tenant=old.tenant,
                scopes=old.scopes,
                expires_in_seconds=None if lifetime is None else lifetime.total_seconds(),
                requests_per_second=old.requests_per_second,
                created_by=actor.name,
            )
            replaced = await statements.execute(
                "replace_key", id=key_id, replaced_by=made.id, overlap_seconds=overlap_seconds
            )
            if not replaced:
                raise _not_rotatable(await _find(statements, key_id))
            await self._audit.record_on(connection, actor, "key.rotate", key_id, jobs=0)
        return made

    async def revoke(self, key_id: str, *, by: str | Actor | None = None) -> Key:
        """Revoke a key for good, and return it. Servers reject it within two seconds."""
        async with self._own.transaction() as (connection, statements):
            await _find(statements, key_id)
            if await statements.execute("revoke_key", id=key_id):
                actor = Actor.of(by)
                await self._audit.record_on(connection, actor, "key.revoke", key_id, jobs=0)
            return (await _find(statements, key_id)).as_key()

    async def find(self, text: str) -> Found | None:
        """Return the key with this text, or None if it is unknown, expired or revoked.

        The database compares hashes: without the pepper, nobody learns anything from the time that
        it takes.
        """
        pepper = await self._pepper.get()
        key_id, wanted = id_of(text), hashed(pepper, text)
        if key_id is None:
            return None
        async with self._own.transaction(read_only=True) as (_, statements):
            row = await statements.one("check_key", _Checked, id=key_id, hash=wanted)
        if row is None:
            return None
        if row.pepper != fingerprint(pepper):
            logs.event(WARNING, "key_under_another_pepper", _another_pepper(f"key {key_id} was"))
            return None
        key = row.as_key()
        return Found(key=key, now=row.now) if row.is_right and key.is_usable(row.now) else None

    async def look_up(self, key_id: str) -> Found | None:
        """Return the key with this ID, or None if it is unknown, expired, revoked or rotated.

        For whoever proved earlier to have the key, such as a browser that is logged in. A client
        keeps using a rotated key until it expires; a person can log in with the new one.
        """
        async with self._own.transaction(read_only=True) as (_, statements):
            row = await statements.one("find_key", _Row, id=key_id) if is_id(key_id) else None
        if row is None or row.as_key().state(row.now) != ACTIVE:
            return None
        return Found(key=row.as_key(), now=row.now)

    async def exist(self) -> bool:
        """Whether a key was ever created. A server without keys serves only this machine."""
        async with self._own.transaction(read_only=True) as (_, statements):
            return bool(await statements.value("any_key"))

    async def check_pepper(self) -> None:
        """Raise ConfigurationError if no key works, because all were made with another pepper."""
        ours = fingerprint(await self._pepper.get())
        async with self._own.transaction(read_only=True) as (_, statements):
            rows = await statements.all("peppers_of_usable_keys", _Pepper)
        others = [row for row in rows if row.pepper != ours]
        if others and len(others) == len(rows):
            raise ConfigurationError(_another_pepper("all keys were"))
        if others:
            logs.event(ERROR, "key_under_another_pepper", _another_pepper("some keys were"))

    create_sync = blocking(create)
    list_sync = blocking(list)
    get_sync = blocking(get)
    rotate_sync = blocking(rotate)
    revoke_sync = blocking(revoke)
    find_sync = blocking(find)
    look_up_sync = blocking(look_up)
    exist_sync = blocking(exist)
    check_pepper_sync = blocking(check_pepper)


class _Pepper(msgspec.Struct, frozen=True):
    pepper: str


async def _insert(statements: Statements, pepper: bytes, **values: object) -> NewKey:
    text = key_text(secrets.token_bytes(8), secrets.token_bytes(SECRET_BYTES))
    key_id = id_of(text)
    assert key_id is not None
    await statements.execute(
        "insert_key",
        id=key_id,
        hash=hashed(pepper, text),
        pepper=fingerprint(pepper),
        **values,
    )
    key = (await _find(statements, key_id)).as_key()
    return NewKey(key=text, **msgspec.structs.asdict(key))


async def _find(statements: Statements, key_id: str) -> _Row:
    row = await statements.one("find_key", _Row, id=key_id) if is_id(key_id) else None
    if row is None:
        raise KeyNotFound(key_id)
    return row


def _not_rotatable(row: _Row) -> WrongState:
    if row.replaced_by is not None:
        reason = f"was already rotated; rotate {row.replaced_by} instead"
    else:
        reason = f"is {row.as_key().state(row.now)}; create a new key"
    return WrongState(f"key {row.id} {reason}")


def _another_pepper(what: str) -> str:
    return (
        f"{what} created with a different pepper and can't be used here; set {VARIABLE} to the"
        " original value, or create new keys"
    )
