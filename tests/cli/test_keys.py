"""`holdfast keys`, run as people and scripts run it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.domain.audit import AuditEntry
from tests.promises.stage import both_stores
from tests.support.command import run_command

pytestmark = pytest.mark.heavy


def on(url: str, work: Callable[[Holdfast], Awaitable[Any]]) -> Any:
    async def do() -> Any:
        async with Holdfast(url) as hf:
            return await work(hf)

    return asyncio.run(do())


def entries(url: str) -> list[AuditEntry]:
    page = on(url, lambda hf: hf.audit.list())
    return list(reversed(page.entries))


def migrate(url: str) -> None:
    on(url, lambda hf: hf.migrate())


@both_stores
def test_a_key_is_created_listed_rotated_and_revoked(store_url: str, tmp_path: Path) -> None:
    def keys(*words: str) -> tuple[str, str]:
        done = run_command("keys", *words, folder=tmp_path, url=store_url)
        assert done.returncode == 0, done.stderr
        return done.stdout, done.stderr

    migrate(store_url)
    text, said = keys("create", "shop", "--tenant", "acme", "--scope", "read,enqueue")
    text = text.strip()
    found = on(store_url, lambda hf: hf.keys.find(text))
    assert (found.key.tenant, found.key.scopes) == ("acme", ("read", "enqueue"))
    assert "can't be shown again" in said
    assert 'curl -H "Authorization: Bearer $KEY"' in said
    assert text.rpartition("_")[2] not in said
    listed, _ = keys("--json")
    (row,) = map(json.loads, listed.splitlines())
    assert (row["id"], "key" in row) == (found.key.id, False)
    rotated, said = keys("rotate", row["id"], "--overlap", "1h", "--by", "ann", "--json")
    new = json.loads(rotated)
    assert on(store_url, lambda hf: hf.keys.find(new["key"])) is not None
    revoked, _ = keys("revoke", row["id"], "--by", "ann")
    assert "is revoked" in revoked
    assert on(store_url, lambda hf: hf.keys.find(text)) is None
    table, _ = keys("list", "--all")
    assert [line.split()[0] for line in table.splitlines()] == ["ID", row["id"], new["id"]]
    assert "revoked" in table
    actions = [(each.action, each.target) for each in entries(store_url) if each.actor == "ann"]
    assert actions == [("key.rotate", row["id"]), ("key.revoke", row["id"])]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["create", "x"], "Missing option '--scope'"),
        (["create", "x", "--scope", "reed"], "did you mean 'read'"),
        (["create", "x", "--scope", "admin", "--tenant", "acme"], "can't have the scope admin"),
        (["create", "x", "--scope", "read", "--expires", "soon"], "is not a length of time"),
        (["rotate", "nope"], "key nope does not exist"),
    ],
)
def test_what_makes_no_sense_is_explained(
    words: list[str], said: str, local_url: str, tmp_path: Path
) -> None:
    migrate(local_url)
    done = run_command("keys", *words, folder=tmp_path, url=local_url)
    assert done.returncode != 0
    assert said in done.stderr
    assert "Traceback" not in done.stderr
