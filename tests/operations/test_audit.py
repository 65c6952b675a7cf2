"""The audit log only grows, its times are the database's, and all of it can be read in pages."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from holdfast import BadArguments, Holdfast
from holdfast.domain.audit import AuditEntry, AuditFilter
from holdfast.domain.limits import PAGE_ROWS_MAX
from holdfast.domain.privileges import ROLES
from holdfast.stores.migrations import application_steps
from tests.support.forks import ROOT
from tests.support.roles import InstalledRoles, installed_roles

# On SQLite, whoever writes to the file sets the time, and no setting turns triggers off.
on_postgres = pytest.mark.parametrize("store_url", ["pg15"], indirect=True)
FORGED = (
    "INSERT INTO holdfast.audit_log (id, at, actor, action, outcome, jobs)"
    " VALUES ('00000000-0000-7000-8000-000000000000', '2001-01-01T00:00:00Z',"
    " {actor}, 'job.cancel', 'allowed', {jobs})"
)


async def execute(hf: Holdfast, sql: str) -> list[Any]:
    """Run a statement as somebody with a database client would."""
    async with hf.transaction() as connection:
        found: list[Any] = await connection.fetch(
            sql.replace("holdfast.", "") if is_sqlite(hf) else sql
        )
        return found


def is_sqlite(hf: Holdfast) -> bool:
    return hf.url_shown.startswith("sqlite")


async def entries(hf: Holdfast, **filter: Any) -> list[AuditEntry]:
    return (await hf.audit.list(AuditFilter(**filter))).entries


async def exported(hf: Holdfast, after: UUID | None = None, **filter: Any) -> list[AuditEntry]:
    return [entry async for entry in hf.audit.export(AuditFilter(**filter), after)]


async def test_the_log_can_only_grow(hf: Holdfast) -> None:
    await hf.audit.record("ann", "queue.pause", "images", jobs=0)
    before = await entries(hf)
    only_here = ["TRUNCATE holdfast.audit_log"]
    if is_sqlite(hf):
        replacing = "REPLACE INTO audit_log SELECT * FROM audit_log"
        only_here = [replacing, f"INSERT OR {replacing}"]
    for change in (
        "UPDATE holdfast.audit_log SET actor = 'nobody'",
        "DELETE FROM holdfast.audit_log",
        *only_here,
    ):
        with pytest.raises(Exception, match="what was recorded never changes"):
            await execute(hf, change)
    assert await entries(hf) == before
    assert before


async def test_no_entry_is_replaced_by_its_place_in_the_file(local_hf: Holdfast) -> None:
    await local_hf.audit.record("ann", "queue.pause", "images")
    with pytest.raises(Exception, match="no column named rowid"):
        await execute(local_hf, "REPLACE INTO audit_log (rowid) VALUES (1)")


@on_postgres
async def test_nobody_switches_the_triggers_off_for_a_session(hf: Holdfast) -> None:
    await hf.audit.record("ann", "queue.pause", "images")

    async def delete() -> None:
        async with hf.transaction() as connection:
            await connection.execute("SET LOCAL session_replication_role = replica")
            await connection.execute("DELETE FROM holdfast.audit_log")

    with pytest.raises(Exception, match="what was recorded never changes"):
        await delete()


@on_postgres
async def test_the_database_sets_the_time_and_the_id(hf: Holdfast) -> None:
    await execute(hf, FORGED.format(actor="'eve'", jobs=0))
    await hf.audit.record("ann", "job.cancel")
    ann, eve = await entries(hf)
    (now,) = await execute(hf, "SELECT clock_timestamp()")
    assert timedelta() < now[0] - eve.at < timedelta(minutes=1)
    for each in (ann, eve):
        assert each.id.version == 7
        assert each.id.int >> 80 == int(each.at.timestamp() * 1000)
    assert ann.id > eve.id


@pytest.mark.parametrize(("actor", "jobs"), [("''", 0), ("NULL", 0), ("'eve'", -1)])
async def test_an_entry_without_an_actor_or_of_less_than_no_jobs_is_refused(
    hf: Holdfast, actor: str, jobs: int
) -> None:
    await hf.audit.list()
    with pytest.raises(Exception, match=r"(?i)constraint"):
        await execute(hf, FORGED.format(actor=actor, jobs=jobs))
    assert await entries(hf) == []


async def test_ids_are_in_the_order_of_recording(hf: Holdfast) -> None:
    for number in range(20):
        await hf.audit.record("ann", "queue.pause", str(number))
    assert [each.target for each in await exported(hf)] == [str(number) for number in range(20)]


async def test_the_log_is_paged_and_filtered(hf: Holdfast) -> None:
    for number in range(5):
        await hf.audit.record("ann", "queue.pause", f"q{number}", jobs=0, because="a test")
    await hf.audit.record("ben", "job.cancel", "q1", jobs=3, outcome="failed")
    seen: list[str | None] = []
    after = None
    while True:
        page = await hf.audit.list(AuditFilter(actor="ann"), 2, after)
        seen += [each.target for each in page.entries]
        after = page.after
        if after is None:
            break
    assert seen == ["q4", "q3", "q2", "q1", "q0"]
    for filter in ({"action": "job.cancel", "target": "q1"}, {"outcome": "failed"}):
        (entry,) = await entries(hf, **filter)
        assert (entry.actor, entry.jobs, entry.outcome) == ("ben", 3, "failed")


async def test_entries_are_found_by_their_time(hf: Holdfast) -> None:
    for target in ("one", "two", "three"):
        await hf.audit.record("ann", "queue.pause", target)
    three, two, one = await entries(hf)
    assert await entries(hf, since=two.at) == [three, two]
    assert await entries(hf, until=two.at) == [one]
    assert await entries(hf, since=two.at, until=three.at) == [two]
    assert await exported(hf, since=two.at) == [two, three]
    long_ago, far_away = datetime(1970, 1, 1, tzinfo=UTC), datetime(2999, 1, 1, tzinfo=UTC)
    assert len(await entries(hf, since=long_ago, until=far_away)) == 3
    with pytest.raises(BadArguments, match="time zone"):
        await entries(hf, since=datetime(2026, 1, 1))  # noqa: DTZ001


async def test_an_export_has_every_entry_once_and_resumes_after_one(hf: Holdfast) -> None:
    async with hf.transaction() as connection:
        for number in range(PAGE_ROWS_MAX + 2):
            await hf.audit.record_on(connection, "ann", "queue.pause", str(number))
    found = await exported(hf)
    assert [each.target for each in found] == [str(number) for number in range(PAGE_ROWS_MAX + 2)]
    assert await exported(hf, found[-3].id) == found[-2:]
    assert await exported(hf, found[-1].id) == []


async def test_an_entry_is_committed_with_the_change_or_not_at_all(hf: Holdfast) -> None:
    async def fail() -> None:
        async with hf.transaction() as connection:
            await hf.audit.record_on(connection, "ann", "job.cancel", "a")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        await fail()
    async with hf.transaction() as connection:
        await hf.audit.record_on(connection, "ann", "job.cancel", "b")
    assert [each.target for each in await entries(hf)] == ["b"]


def test_entries_of_an_older_file_are_kept(tmp_path: Path) -> None:
    steps = application_steps("sqlite", "holdfast.operations")
    with closing(sqlite3.connect(tmp_path / "jobs.db")) as connection:
        for step in steps:
            if step.name == "walls":
                connection.execute(
                    "INSERT INTO audit_log (id, at, actor, action, outcome, jobs)"
                    " VALUES (?, '2026-01-01', 'ann', 'queue.pause', 'allowed', 7)",
                    ["0" * 36],
                )
                connection.commit()
            connection.executescript(step.sql)
        assert connection.execute("SELECT actor, jobs FROM audit_log").fetchall() == [("ann", 7)]
        with pytest.raises(sqlite3.IntegrityError, match="never changes"):
            connection.execute("DELETE FROM audit_log")


async def test_no_role_of_a_process_can_change_the_log_or_its_triggers(postgres_url: str) -> None:
    async with installed_roles(postgres_url) as roles:
        async with Holdfast(roles.url("operator")) as hf:
            await hf.audit.record("ann", "queue.pause", "images", jobs=0)
        changes = (
            "UPDATE holdfast.audit_log SET actor = 'nobody'",
            "DELETE FROM holdfast.audit_log",
            "TRUNCATE holdfast.audit_log",
            "ALTER TABLE holdfast.audit_log DISABLE TRIGGER ALL",
            "DROP TABLE holdfast.audit_log",
            "SET session_replication_role = replica",
        )
        for role in ROLES:
            connection = await asyncpg.connect(roles.url(role))
            for change in changes:
                with pytest.raises(asyncpg.InsufficientPrivilegeError):
                    await connection.execute(change)
            await connection.close()
        async with Holdfast(roles.url("readonly")) as hf:
            (entry,) = await entries(hf)
            assert entry.actor == "ann"
        await _remove_as_in_the_guide(roles)
        async with Holdfast(roles.url("readonly")) as hf:
            (entry,) = await entries(hf)
            assert entry.action == "audit.remove"


async def _remove_as_in_the_guide(roles: InstalledRoles) -> None:
    guide = (ROOT / "docs/guides/audit.md").read_text(encoding="utf-8")
    script = guide.partition("```sql\n")[2].partition("```")[0]
    assert "2020-01-01" in script
    connection = await asyncpg.connect(roles.admin_url)
    try:
        await connection.execute(
            script.replace("holdfast_owner", f'"{roles.name("owner")}"').replace("2020-", "2999-")
        )
    finally:
        await connection.close()
