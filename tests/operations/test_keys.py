"""Keys are shown once, stored hashed, rotated with an overlap, and every change is audited."""

from __future__ import annotations

import asyncio
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from holdfast import BadArguments, ConfigurationError, Holdfast, WrongState
from holdfast.domain.errors import KeyNotFound
from holdfast.domain.keys import NewKey
from holdfast.domain.secrets import masked

PEPPER = "HOLDFAST_KEY_PEPPER"


@pytest.fixture
async def key(hf: Holdfast) -> NewKey:
    return await hf.keys.create("shop", tenant="acme", scopes=["enqueue", "read"], by="ann")


async def execute(hf: Holdfast, sql: str) -> list[dict[str, Any]]:
    """Run a statement as somebody with a database client would, and return the rows."""
    async with hf.transaction() as connection:
        is_sqlite = getattr(connection, "dialect", "") == "sqlite"
        found = await connection.fetch(sql.replace("holdfast.", "") if is_sqlite else sql)
        return [dict(row) for row in found]


async def test_a_new_key_is_found_by_its_text_and_by_no_other(hf: Holdfast, key: NewKey) -> None:
    found = await hf.keys.find(key.key)
    assert found is not None
    assert (found.key.id, found.key.tenant, found.key.scopes) == (
        key.id,
        "acme",
        ("read", "enqueue"),
    )
    last = "a" if key.key[-1] != "a" else "q"
    for other in (key.key[:-1] + last, key.key[:-1], key.id, "", "hfk_", key.key.upper()):
        assert await hf.keys.find(other) is None


async def test_the_database_has_no_key_that_could_be_sent(hf: Holdfast, key: NewKey) -> None:
    secret = key.key.rpartition("_")[2]
    (row,) = await execute(hf, "SELECT * FROM holdfast.api_keys")
    assert row["id"] == key.id
    assert secret not in str(row)


async def test_no_text_that_people_see_has_the_secret(key: NewKey) -> None:
    secret = key.key.rpartition("_")[2]
    for text in (repr(key), str(key), masked(f"key {key.key} failed"), masked(key.key, 30)):
        assert secret not in text
        assert secret[:12] not in text
    assert key.id in masked(f"key {key.key} failed")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"scopes": []}, "at least one of"),
        ({"scopes": "read"}, "a list of scopes"),
        ({"scopes": ["reed"]}, "did you mean 'read'"),
        ({"scopes": ["admin"], "tenant": "acme"}, "can't have the scope admin"),
        ({"scopes": ["read"], "tenant": ""}, "tenant must not be empty"),
        ({"scopes": ["read"], "expires_in_seconds": 0}, "expires_in_seconds"),
        ({"scopes": ["read"], "requests_per_second": 0}, "requests_per_second"),
    ],
)
async def test_a_key_that_makes_no_sense_is_refused(
    local_hf: Holdfast, options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(BadArguments, match=reason):
        await local_hf.keys.create("shop", **options)
    assert not await local_hf.keys.exist()


async def test_a_revoked_key_is_not_found_and_stays_listed(hf: Holdfast, key: NewKey) -> None:
    revoked = await hf.keys.revoke(key.id, by="ben")
    assert revoked == await hf.keys.revoke(key.id, by="cid")
    assert await hf.keys.find(key.key) is None
    assert await hf.keys.list() == []
    assert await hf.keys.list(ended=True) == [revoked]
    assert await hf.keys.exist()


async def test_an_expired_key_is_not_found(hf: Holdfast) -> None:
    key = await hf.keys.create("shop", scopes=["read"], expires_in_seconds=3600)
    assert await hf.keys.find(key.key) is not None
    await expire(hf)
    assert await hf.keys.find(key.key) is None
    assert await hf.keys.list() == []


async def expire(hf: Holdfast) -> None:
    await execute(hf, "UPDATE holdfast.api_keys SET expires_at = created_at")


async def test_a_rotated_key_works_beside_the_new_one_until_the_overlap_is_over(
    hf: Holdfast, key: NewKey
) -> None:
    new = await hf.keys.rotate(key.id, overlap_seconds=3600, by="ann")
    old = await hf.keys.get(key.id)
    assert (new.name, new.tenant, new.scopes) == (key.name, key.tenant, key.scopes)
    assert old.replaced_by == new.id
    assert old.expires_at is not None
    assert 3500 < (old.expires_at - new.created_at).total_seconds() < 3700
    assert await hf.keys.find(key.key)
    assert await hf.keys.find(new.key)
    with pytest.raises(WrongState, match=f"rotate {new.id} instead"):
        await hf.keys.rotate(key.id)
    assert len(await hf.keys.list()) == 2
    await hf.keys.rotate(new.id, overlap_seconds=0)
    assert await hf.keys.find(new.key) is None


async def test_a_rotation_keeps_the_lifetime_and_never_lengthens_that_of_the_old_key(
    hf: Holdfast,
) -> None:
    key = await hf.keys.create("shop", scopes=["read"], expires_in_seconds=600)
    new = await hf.keys.rotate(key.id, overlap_seconds=86400)
    assert (await hf.keys.get(key.id)).expires_at == key.expires_at
    assert new.expires_at is not None
    assert 599 < (new.expires_at - new.created_at).total_seconds() < 601


async def test_a_key_is_rotated_once_however_many_ask_at_the_same_time(
    hf: Holdfast, key: NewKey
) -> None:
    rotations = (hf.keys.rotate(key.id) for _ in range(5))
    done = await asyncio.gather(*rotations, return_exceptions=True)
    assert len([each for each in done if isinstance(each, NewKey)]) == 1
    assert len(await hf.keys.list()) == 2


async def test_an_unknown_key_is_not_found(hf: Holdfast) -> None:
    for key_id in ("a2b3c4d5e6f7", "nope", "", "\0"):
        for change in (hf.keys.get, hf.keys.rotate, hf.keys.revoke):
            with pytest.raises(KeyNotFound):
                await change(key_id)


async def test_every_change_of_a_key_is_in_the_audit_log(hf: Holdfast, key: NewKey) -> None:
    new = await hf.keys.rotate(key.id, by="ben")
    await hf.keys.revoke(new.id, by="cid")
    with pytest.raises(WrongState):
        await hf.keys.rotate(new.id, by="dan")
    entries = (await hf.audit.list()).entries
    assert [(each.actor, each.action, each.target) for each in reversed(entries)] == [
        ("ann", "key.create", key.id),
        ("ben", "key.rotate", key.id),
        ("cid", "key.revoke", new.id),
    ]


async def test_a_change_of_a_key_that_can_not_be_recorded_does_not_happen(
    hf: Holdfast, key: NewKey
) -> None:
    with pytest.raises(BadArguments):
        await hf.keys.revoke(key.id, by="a name that\ncan't be stored")
    assert await hf.keys.find(key.key) is not None


async def test_keys_under_another_pepper_are_not_accepted_in_silence(
    hf: Holdfast, key: NewKey, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await hf.keys.check_pepper()
    monkeypatch.setenv(PEPPER, "p" * 32)
    assert await hf.keys.find(key.key) is None
    assert f"key {key.id} was created with a different pepper" in caplog.text
    with pytest.raises(ConfigurationError, match="all keys were created with a different pepper"):
        await hf.keys.check_pepper()
    mine = await hf.keys.create("mine", scopes=["read"])
    await hf.keys.check_pepper()
    assert "some keys were created with a different pepper" in caplog.text
    assert await hf.keys.find(mine.key) is not None


async def test_a_pepper_that_is_too_short_is_refused_without_being_shown(
    hf: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PEPPER, "pepper-short")
    with pytest.raises(ConfigurationError, match="has 12 characters") as refused:
        await hf.keys.create("shop", scopes=["read"])
    assert "pepper-short" not in str(refused.value)
    assert "secrets.token_urlsafe" in str(refused.value)


async def test_the_pepper_of_a_file_is_beside_it_for_its_owner_only(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    apps = [Holdfast(url) for _ in range(8)]
    made = await asyncio.gather(*(app.keys.create("shop", scopes=["read"]) for app in apps))
    for app, key in zip(apps, reversed(made), strict=True):
        assert await app.keys.find(key.key) is not None
        await app.close()
    file = tmp_path / "jobs.db.pepper"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [name for name in os.listdir(tmp_path) if "pepper" in name] == [file.name]


async def test_a_damaged_pepper_is_explained_and_not_replaced(tmp_path: Path) -> None:
    file = tmp_path / "jobs.db.pepper"
    file.write_text("half")
    hf = Holdfast(f"sqlite:///{tmp_path / 'jobs.db'}")
    with pytest.raises(ConfigurationError, match="is damaged"):
        await hf.keys.create("shop", scopes=["read"])
    assert file.read_text() == "half"
    await hf.close()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
async def test_a_pepper_of_another_user_is_explained(tmp_path: Path) -> None:
    file = tmp_path / "jobs.db.pepper"
    file.write_text("p" * 43)
    file.chmod(0)
    hf = Holdfast(f"sqlite:///{tmp_path / 'jobs.db'}")
    with pytest.raises(ConfigurationError, match="make the file readable by this user"):
        await hf.keys.create("shop", scopes=["read"])
    await hf.close()


@pytest.mark.parametrize("host", ["db.example.com", "192.0.2.1:5433", "localhost,db.example.com"])
async def test_a_database_elsewhere_needs_the_variable(
    host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(PEPPER, raising=False)
    hf = Holdfast(f"postgresql://ann:secret@{host}/jobs")
    with pytest.raises(ConfigurationError, match=f"keys need {PEPPER}") as refused:
        await hf.keys.create("shop", scopes=["read"])
    assert "secret@" not in str(refused.value)


def test_code_without_an_event_loop_has_the_same_methods(store_url: str) -> None:
    hf = Holdfast(store_url)
    key = hf.keys.create_sync("shop", scopes=["read"])
    assert hf.keys.find_sync(key.key) is not None
    assert [each.id for each in hf.keys.list_sync()] == [key.id]
    assert hf.audit.list_sync().entries[0].target == key.id
    hf.close_sync()


async def test_the_tables_themselves_refuse_an_administrator_of_one_tenant(
    hf: Holdfast, key: NewKey
) -> None:
    with pytest.raises(Exception, match=r"(?i)check constraint"):
        await execute(hf, "UPDATE holdfast.api_keys SET scopes = 'read admin'")
