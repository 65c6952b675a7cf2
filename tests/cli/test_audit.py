"""`holdfast audit`, and what every command that changes something leaves in the log."""

from __future__ import annotations

import asyncio
import getpass
import json
import re
import socket
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.cli.main import run
from holdfast.domain.audit import Actor, AuditEntry
from tests.cli.test_cli import COMMAND, environment
from tests.support.terminal import Terminal

JOB = "01972d5c-8a30-7c4e-b1f0-3d2a5b6c7d8e"
HOSTILE = "images\x1b[2J\x9b31m\nforged line"
ME = f"{getpass.getuser()}@{socket.gethostname()}"
WIDE = 80

Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], local_url: str) -> Command:
    """Run a command in this process, on a new database."""

    def do(*words: str) -> subprocess.CompletedProcess[str]:
        capsys.readouterr()
        code = run([*words, "--database", local_url])
        out, err = capsys.readouterr()
        return subprocess.CompletedProcess(words, code, out, err)

    assert do("migrate").returncode == 0
    return do


def on(url: str, work: Callable[[Holdfast], Awaitable[Any]]) -> Any:
    async def do() -> Any:
        async with Holdfast(url) as hf:
            return await work(hf)

    return asyncio.run(do())


def entries(url: str) -> list[AuditEntry]:
    """All but the entry of the migration, oldest first."""
    found: list[AuditEntry] = on(url, lambda hf: hf.audit.list()).entries
    return found[-2::-1]


def record(url: str, *targets: str) -> None:
    async def work(hf: Holdfast) -> None:
        for target in targets:
            await hf.audit.record(Actor(name="ann", address="192.0.2.7"), "queue.pause", target)

    on(url, work)


CHANGES = (
    (["queues", "pause", "images"], "queue.pause", "images"),
    (["queues", "resume", "images"], "queue.resume", "images"),
    (["queues", "cap", "images", "4"], "queue.cap", "images"),
    (["queues", "drain", "mail"], "queue.drain", "mail"),
    (["breakers", "open", "gateway"], "breaker.open", "gateway"),
    (["breakers", "close", "gateway"], "breaker.close", "gateway"),
    (["breakers", "reset", "gateway"], "breaker.reset", "gateway"),
    (["jobs", "cancel", JOB], "job.cancel", JOB),
    (["jobs", "retry", JOB], "job.retry", JOB),
    (["dead", "requeue", JOB], "job.requeue", JOB),
)


def test_every_change_by_hand_says_who_from_where_and_why(command: Command, local_url: str) -> None:
    for words, _, _ in CHANGES:
        command(*words, "--by", "ann", "--because", "a drill")
    done = [each for each in entries(local_url) if each.outcome == "allowed"]
    assert [(each.action, each.target) for each in done] == [
        (action, target) for _, action, target in CHANGES
    ]
    assert {(each.actor, each.because, each.address) for each in done} == {
        ("ann", "a drill", f"{ME} (command line)")
    }
    failed = [each.target for each in entries(local_url) if each.outcome == "failed"]
    assert failed == [JOB, JOB, JOB]


def test_many_jobs_are_one_entry_with_the_filter_and_their_number(
    command: Command, local_url: str
) -> None:
    async def enqueue(hf: Holdfast) -> None:
        @hf.job
        async def resize(image: int) -> None: ...

        await hf.enqueue_many([resize.call(number) for number in range(3)])

    on(local_url, enqueue)
    canceled = command("jobs", "cancel", "--all", "--name", "resize", "--yes")
    assert canceled.returncode == 0, canceled.stderr
    (entry,) = entries(local_url)
    assert (entry.actor, entry.jobs) == (ME, 3)
    assert entry.target == "all with states=queued,running name=resize"


def test_a_key_and_a_migration_are_recorded_with_the_login(
    command: Command, local_url: str
) -> None:
    key_id = json.loads(command("keys", "create", "shop", "--scope", "read", "--json").stdout)["id"]
    command("keys", "rotate", key_id, "--by", "ben")
    command("keys", "revoke", key_id)
    command("migrate")  # applies nothing
    assert [(each.actor, each.action, each.target) for each in entries(local_url)] == [
        (ME, "key.create", key_id),
        ("ben", "key.rotate", key_id),
        (ME, "key.revoke", key_id),
    ]
    assert {each.address for each in entries(local_url)} == {f"{ME} (command line)"}
    (migration,) = on(local_url, lambda hf: hf.audit.list()).entries[-1:]
    assert (migration.actor, migration.action) == (ME, "schema.migrate")
    assert "service 0001_keys" in migration.target


def test_the_list_is_filtered_and_paged(command: Command, local_url: str) -> None:
    record(local_url, "a", "b", "c")
    first = command("audit", "list", "--actor", "ann", "--limit", "2", "--since", "1h")
    assert [line.split()[4] for line in first.stdout.splitlines()[1:]] == ["c", "b"]
    after = first.stderr.split()[-1]
    rest = command("audit", "--actor", "ann", "--after", after, "--json").stdout
    assert [json.loads(line)["target"] for line in rest.splitlines()] == ["a"]
    assert command("audit", "--until", "1h").stderr == "no entries\n"
    assert command("audit", "--outcome", "denied").stderr == "no entries\n"
    assert "not the ID of an entry" in command("audit", "--after", "x").stderr


@pytest.mark.heavy
def test_a_table_fits_the_terminal_and_no_text_moves_its_cursor(
    command: Command, local_url: str, tmp_path: Path
) -> None:
    record(local_url, HOSTILE)
    words = [*COMMAND, "audit", "--database", local_url]
    terminal = Terminal(words, tmp_path, environment(), columns=WIDE)
    shown = re.sub(r"\x1b\[[0-9;]*m", "", terminal.read_all())
    assert terminal.end() == 0
    assert len(shown.splitlines()) == 3
    assert all(len(line) <= WIDE for line in shown.splitlines())
    for each in (shown, command("audit", "export").stdout):
        assert not {"\x1b", "\x9b"} & set(each)


def test_an_export_has_all_fields_and_continues_in_the_same_file(
    command: Command, local_url: str, tmp_path: Path
) -> None:
    record(local_url, "Bücher", HOSTILE)
    path = tmp_path / "audit.jsonl"
    first = command("audit", "export", "--actor", "ann", "--out", str(path))
    assert first.returncode == 0, first.stderr
    record(local_url, "c")
    assert "exists; pass" in command("audit", "export", "--out", str(path)).stderr
    after = first.stderr.split()[-1]
    command("audit", "export", "--after", after, "--out", str(path))
    found = [json.loads(line) for line in path.read_text("ascii").splitlines()]
    assert [each["target"] for each in found] == ["Bücher", HOSTILE, "c"]
    expected = entries(local_url)
    assert [each["id"] for each in found] == [str(each.id) for each in expected]
    assert [set(each) for each in found] == [set(AuditEntry.__struct_fields__)] * 3
    assert found[0]["at"] == expected[0].at.isoformat().replace("+00:00", "Z")
    assert command("audit", "export", "--actor", "nobody").stderr == "holdfast: no entries\n"
