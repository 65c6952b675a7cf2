"""What an examination finds in SQLite files, where it is so."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from holdfast import Check, Holdfast, Severity
from holdfast.stores.sqlite.diagnosis import kind_of_mount
from tests.support.disks import small_disk
from tests.support.examining import (
    Hurried,
    all_fine,
    doctor,
    in_shell,
    look,
    the,
)
from tests.support.running import execute, working
from tests.support.stores import full_store

pytestmark = pytest.mark.heavy

PAGE_BYTES = 4096
on_sqlite = pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)


async def test_all_is_fine_with_a_live_worker_on_sqlite(local_url: str) -> None:
    async with Holdfast(local_url) as hf:

        @hf.job(timeout_seconds=60)
        async def greet() -> None: ...

        async with working(hf):
            found = await all_fine(hf)
    servers = {Check.CLOCK, Check.CONNECTIONS, Check.POOLER, Check.VACUUM, Check.DEAD_ROWS}
    servers |= {Check.ENCODING, Check.REPLICA, Check.ROLES}
    unused = {Check.SECRETS, Check.MESSENGERS, Check.UNREAD}  # examined where there are some
    assert {each.code for each in found.findings} == set(Check) - servers - unused


def file_of(url: str) -> Path:
    return Path(url.removeprefix("sqlite:///"))


def overwrite(url: str, first_page: int, last_page: int) -> None:
    """Put something else in the place of these pages, or of the whole file."""
    path = file_of(url)
    content = path.read_bytes() if path.exists() else bytes(2 * PAGE_BYTES)
    until = len(content) if last_page == 0 else len(content) + last_page * PAGE_BYTES
    begin = first_page * PAGE_BYTES
    path.write_bytes(content[:begin] + b"\xff" * (until - begin) + content[until:])


async def test_a_file_that_is_not_there_is_a_finding_and_is_not_made(local_url: str) -> None:
    found = await Holdfast(local_url).examine()
    assert the(found, Check.REACHABLE).sentence.startswith("there is no file ")
    assert not file_of(local_url).exists()


async def test_a_file_that_is_no_database_is_a_finding(local_url: str) -> None:
    overwrite(local_url, 0, 0)
    found = await Holdfast(local_url).examine()
    assert found.severity is Severity.CRITICAL
    assert "file is not a database" in the(found, Check.INTEGRITY).sentence


async def test_slow_answers(local_url: str) -> None:
    await Holdfast(local_url).migrate()
    finding = await look(Holdfast(local_url, seam=Hurried()), Check.REACHABLE)
    assert finding.severity is Severity.WARNING
    assert re.search(r"answers in \d+ s, which is slow", finding.sentence)


async def test_wake_ups_that_can_not_be_sent_on_sqlite(local_url: str, tmp_path: Path) -> None:
    await Holdfast(local_url).migrate()
    folder = tmp_path / ("a" * 100)
    folder.mkdir()
    told = await doctor(local_url, "--json", environment={"TMPDIR": str(folder)})
    (finding,) = [each for each in told.findings if each["code"] == "wakeups"]
    assert finding["severity"] == "warning"
    assert finding["sentence"].startswith("wake-ups don't arrive (no socket can be bound in ")


async def test_the_setting_that_loses_the_last_moments_on_sqlite(local_url: str) -> None:
    await Holdfast(local_url).migrate()
    finding = await look(Holdfast(local_url, sqlite_synchronous="NORMAL"), Check.DURABILITY)
    assert finding.severity is Severity.INFO
    assert finding.sentence.startswith("sqlite_synchronous is NORMAL: a power failure loses")


@on_sqlite
async def test_history_that_should_be_forgotten_long_ago(hf: Holdfast, store_url: str) -> None:
    @hf.job
    async def send() -> None: ...

    await send.enqueue()
    await hf.run_due()
    await execute(store_url, "DROP TRIGGER history_never_changes")
    await execute(store_url, "UPDATE history SET kept_until = 1")
    finding = await look(hf, Check.HISTORY)
    assert finding.sentence == "1 job of the history should have been deleted days ago"
    await (await full_store(hf)).tidy(10)
    assert (await look(hf, Check.HISTORY)).severity is Severity.OK


async def test_a_disk_that_is_nearly_full_and_one_that_can_not_be_written(tmp_path: Path) -> None:
    mega = 1024**2
    with small_disk(tmp_path, 120 * mega) as disk:
        hf = Holdfast(f"sqlite:///{disk.database}")
        await hf.migrate()
        found = await hf.examine()
        assert the(found, Check.DISK).severity is Severity.WARNING
        assert the(found, Check.FILE_SYSTEM).facts["kind"] == "tmpfs"
        disk.fill(spare_bytes=20 * mega)
        finding = await look(hf, Check.DISK)
        assert finding.severity is Severity.CRITICAL
        assert f"the disk of {disk.database} has 20 MB of 120 MB free" in finding.sentence
        disk.fill()
        assert (await look(hf, Check.DISK)).facts["free_bytes"] == 0
        disk.make_room()
        disk.protect()
        protected = await look(hf, Check.WRITABLE)
    assert protected.severity is Severity.CRITICAL
    assert protected.sentence.endswith("jobs.db can't be written by this user")
    assert (
        protected.advice
        == "give the user of workers and clients write access to the file and its directory"
    )


def test_a_file_on_a_network_file_system() -> None:
    mounts = (
        "overlay / overlay rw 0 0\n"
        "server:/export /srv nfs4 rw 0 0\n"
        "/dev/sdb1 /srv/fast\\040disk ext4 rw 0 0\n"
        "tmpfs /srvx tmpfs rw 0 0\n"
    )
    assert kind_of_mount("/srv/shop/jobs.db", mounts) == "nfs4"
    assert kind_of_mount("/srv/fast disk/jobs.db", mounts) == "ext4"
    assert kind_of_mount("/srv2/jobs.db", mounts) == "overlay"


@on_sqlite
async def test_a_journal_that_is_not_a_write_ahead_log(store_url: str) -> None:
    await Holdfast(store_url).migrate()
    await execute(store_url, "PRAGMA journal_mode = DELETE")
    finding = await look(Holdfast(store_url), Check.JOURNAL)
    assert finding.severity is Severity.WARNING
    assert finding.sentence.startswith("the journal mode is delete, not wal")
    await in_shell(finding.command)
    assert (await look(Holdfast(store_url), Check.JOURNAL)).severity is Severity.OK


@on_sqlite
async def test_a_log_that_a_reader_keeps_from_being_carried_over(store_url: str) -> None:
    await Holdfast(store_url).migrate()
    path = store_url.removeprefix("sqlite:///")
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM jobs").fetchone()
        await execute(store_url, "CREATE TABLE ballast AS SELECT zeroblob(70 * 1024 * 1024)")
        finding = await look(Holdfast(store_url), Check.JOURNAL)
        assert finding.severity is Severity.WARNING
        assert re.match(r"the write-ahead log is \d+ MB: a long-running read", finding.sentence)
        reader.execute("COMMIT")
    await in_shell(finding.command)
    assert (await look(Holdfast(store_url), Check.JOURNAL)).severity is Severity.OK


@on_sqlite
async def test_a_file_that_is_damaged(hf: Holdfast, store_url: str) -> None:
    @hf.job
    async def send(text: str) -> None: ...

    await hf.enqueue_many([send.call("x" * 200) for _ in range(500)])
    await hf.close()
    overwrite(store_url, 40, -1)
    found = await Holdfast(store_url).examine()
    finding = the(found, Check.INTEGRITY)
    assert finding.severity is Severity.CRITICAL
    assert finding.sentence.startswith(f"{file_of(store_url)} is damaged: ")
    assert found.exit_code == 2


@on_sqlite
async def test_a_file_that_is_too_large_to_be_checked_in_time(hf: Holdfast, store_url: str) -> None:
    @hf.job
    async def send() -> None: ...

    await hf.enqueue_many([send.call() for _ in range(5000)])
    finding = await look(Holdfast(store_url, seam=Hurried()), Check.INTEGRITY)
    assert finding.severity is Severity.INFO
    assert finding.sentence == "there was not enough time to check the whole file"
    await in_shell(finding.command)
