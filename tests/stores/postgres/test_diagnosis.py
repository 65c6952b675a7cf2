"""What an examination finds in PostgreSQL, on servers where it is so."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import AsyncExitStack, suppress
from itertools import count
from pathlib import Path

import asyncpg
import pytest

from holdfast import Check, Holdfast, Severity, StoreUnavailable
from tests.support.bouncer import Bouncer, bouncer_program
from tests.support.clocks import Clock
from tests.support.examining import (
    all_fine,
    connected,
    doctor,
    look,
    of,
    paste,
    the,
)
from tests.support.pooling import needs_a_session
from tests.support.postgres import Server, start_all, system_binaries
from tests.support.processes import wait_until
from tests.support.running import execute, working
from tests.support.services import missing

pytestmark = pytest.mark.heavy

on_postgres = pytest.mark.parametrize("store_url", ["pg15"], indirect=True)
on_both_postgres = pytest.mark.parametrize("store_url", ["pg15", "pg18"], indirect=True)
behind_bouncer = pytest.mark.parametrize("store_url", ["bouncer"], indirect=True)


class Own:
    """A durable server that is set up for what a shared one is not, with a database per test."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self._numbers = count(1)

    async def database(self) -> str:
        name = f"doctor_{next(self._numbers)}"
        async with connected(self.server.url("postgres")) as connection:
            await connection.execute(f"CREATE DATABASE {name}")
        url = self.server.url(name)
        await Holdfast(url).migrate()
        return url


@pytest.fixture(scope="module")
def own() -> Iterator[Own]:
    server = Server(
        "doctor",
        system_binaries() or missing("PostgreSQL is not installed"),
        max_connections="20",
        max_prepared_transactions="5",
        wal_level="logical",
        fsync="on",
        full_page_writes="on",
        synchronous_commit="on",
    )
    try:
        start_all([server])
        yield Own(server)
    finally:
        server.remove()


async def test_all_is_fine_with_a_live_worker_on_a_durable_server(own: Own) -> None:
    async with Holdfast(await own.database()) as hf:

        @hf.job(timeout_seconds=60)
        async def greet() -> None: ...

        async with working(hf):
            found = await all_fine(hf)
    assert (found.severity, found.exit_code) == (Severity.OK, 0)
    checks = {each.code for each in found.findings}
    files = {Check.DISK, Check.FILE_SYSTEM, Check.JOURNAL, Check.INTEGRITY}
    unused = {
        Check.ROLES,
        Check.SECRETS,
        Check.MESSENGERS,
        Check.REPLICA,
    }  # examined where there are some
    assert checks == set(Check) - files - unused - {Check.UNREAD}
    assert re.fullmatch(
        r"PostgreSQL [\d.]+ at 127\.0\.0\.1:\d+/doctor_\d+ answers in \S+ m?s",
        the(found, Check.REACHABLE).sentence,
    )


async def test_a_stopped_server_is_a_finding_and_the_jobs_are_looked_at_still(
    own_postgres: Server,
) -> None:
    own_postgres.stop()
    hf = Holdfast(own_postgres.url("postgres").replace("postgres@", "postgres:secret@"))

    @hf.job
    async def endless() -> None: ...

    found = await hf.examine()
    assert [each.code for each in found.findings] == [Check.REACHABLE, Check.TIMEOUTS]
    assert found.exit_code == 2
    assert "is not available: ConnectionRefusedError" in found.findings[0].sentence
    assert "secret" not in repr(found)


async def test_a_database_without_a_schema(postgres_url: str) -> None:
    finding = await look(Holdfast(postgres_url), Check.SCHEMA)
    assert (finding.severity, finding.facts["version"]) == (Severity.CRITICAL, 0)
    assert finding.sentence == "the database has no schema"


@on_postgres
@pytest.mark.parametrize(("shift", "way"), [("+1h", "ahead of"), ("-1h", "behind")])
async def test_a_clock_that_differs(store_url: str, tmp_path: Path, shift: str, way: str) -> None:
    clock = Clock(tmp_path, shift)
    told = await doctor(store_url, "--json", environment=clock.environment)
    (finding,) = [each for each in told.findings if each["code"] == "clock"]
    assert finding["severity"] == "warning"
    assert re.match(
        rf"this machine's clock is (59 min|1 h) {way} the database's\. Leases and due times"
        " use the database's clock and are right",
        finding["sentence"],
    )
    assert 3500 < abs(finding["facts"]["ahead_seconds"]) < 3700


@on_both_postgres
@needs_a_session
async def test_a_transaction_that_holds_back_vacuum(hf: Holdfast, store_url: str) -> None:
    async with connected(store_url) as connection:
        process = connection.get_server_pid()
        await connection.execute("SET application_name = 'night report'")
        await connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        await connection.execute("SELECT 'hunter2', 4711 -- for Ada")
        assert (await look(hf, Check.VACUUM)).severity is Severity.OK  # it is young
        finding = await look(hf, Check.VACUUM, transaction_seconds=0.0)
        assert finding.severity is Severity.CRITICAL
        assert finding.sentence.startswith(
            f"process {process} (user postgres, night report, idle in transaction) has been"
            " holding back vacuum for "
        )
        assert finding.sentence.endswith(": SELECT ?, ?")
        assert finding.facts["since"] is not None
        assert "idle_in_transaction_session_timeout" in (finding.advice or "")
        await paste(store_url, finding.command)
        await wait_until(connection.is_closed, "ended")


@on_postgres
async def test_an_open_transaction_that_holds_nothing_back_is_no_finding(
    hf: Holdfast, store_url: str
) -> None:
    async with connected(store_url) as connection, connection.transaction():
        await connection.execute("SELECT 1")  # whose result is not kept open, as by a fetch
        finding = await look(hf, Check.VACUUM, transaction_seconds=0.0)
    assert finding.severity is Severity.OK


async def test_a_prepared_transaction_that_holds_back_vacuum(own: Own) -> None:
    url = await own.database()
    async with connected(url) as connection:
        await connection.execute(
            "BEGIN; DELETE FROM holdfast.jobs; PREPARE TRANSACTION 'it''s left'"
        )
    finding = await look(Holdfast(url), Check.VACUUM, transaction_seconds=0.0)
    assert finding.sentence.startswith(
        "prepared transaction it's left (user postgres) has been holding back vacuum for "
    )
    assert finding.command == "ROLLBACK PREPARED 'it''s left';"
    await paste(url, finding.command)
    fixed = await look(Holdfast(url), Check.VACUUM, transaction_seconds=0.0)
    assert fixed.severity is Severity.OK


async def test_a_replication_slot_that_nobody_reads(own: Own) -> None:
    url = await own.database()
    async with connected(url) as connection:
        await connection.execute("SELECT pg_create_logical_replication_slot('left', 'pgoutput')")
    finding = await look(Holdfast(url), Check.VACUUM)
    assert finding.severity is Severity.WARNING
    assert re.match(
        r"replication slot left \(pgoutput\) is holding back vacuum, by [\d,]+ transactions?$",
        finding.sentence,
    )
    await paste(url, finding.command)
    assert (await look(Holdfast(url), Check.VACUUM)).severity is Severity.OK


async def test_what_the_user_may_not_see_is_said(own: Own) -> None:
    url = await own.database()
    async with connected(url) as connection:
        await connection.execute("CREATE ROLE clerk LOGIN; GRANT USAGE ON SCHEMA holdfast TO clerk")
        clerk = Holdfast(url.replace("postgres@", "clerk@"))
        async with connection.transaction(isolation="repeatable_read"):
            await connection.fetch("SELECT 1")
            found = await clerk.examine(transaction_seconds=0.0)
            finding = the(found, Check.VACUUM)
            assert finding.severity is Severity.INFO
            assert finding.sentence == (
                "1 session of other users may be holding back vacuum, but user clerk can't see"
                " for how long"
            )
            await paste(url, finding.command)
            seen = await look(clerk, Check.VACUUM, transaction_seconds=0.0)
            assert seen.sentence.startswith("process ")
    unread = the(found, Check.UNREAD)
    assert unread.severity is Severity.WARNING
    assert unread.sentence.startswith("could not check the schema: ")
    assert "permission denied" in unread.sentence


FILL = """
INSERT INTO holdfast.jobs (id, name, queue, priority, arguments, max_attempts)
SELECT gen_random_uuid(), 'fill', repeat('q', 180) || number, 0, '{}', 1
FROM generate_series(1, 40000) AS number
"""


@on_postgres
async def test_dead_rows_that_nobody_removes_and_an_index_that_stays_large(
    hf: Holdfast, store_url: str
) -> None:
    async with connected(store_url) as connection:
        # Statistics are told at the end of a session's statements, late if there are many.
        await connection.execute("ALTER TABLE holdfast.jobs SET (autovacuum_vacuum_threshold=1e8)")
        await connection.execute(FILL)
        await connection.execute("DELETE FROM holdfast.jobs")
    found = await hf.examine()

    async def told() -> bool:
        nonlocal found
        found = await hf.examine()
        return bool(the(found, Check.DEAD_ROWS).facts["dead"] >= 40_000)

    await wait_until(told, lambda: f"dead rows: {found}")
    dead = the(found, Check.DEAD_ROWS)
    assert dead.severity is Severity.WARNING
    assert dead.sentence.startswith("holdfast.jobs has 40,000 dead rows beside 0 live ones (100%)")
    await paste(store_url, dead.command)
    vacuumed = await hf.examine()
    assert the(vacuumed, Check.DEAD_ROWS).severity is Severity.OK
    large = the(vacuumed, Check.INDEXES)
    assert large.severity is Severity.WARNING
    assert re.match(
        r"index jobs_ready takes \d+ MB for about 0 entries: most of it is empty",
        large.sentence,
    )
    await paste(store_url, large.command)
    assert (await look(hf, Check.INDEXES)).severity is Severity.OK


@on_postgres
async def test_an_index_of_jobs_that_have_just_come_is_not_called_empty(
    hf: Holdfast, store_url: str
) -> None:
    async with connected(store_url) as connection:
        await connection.execute("ALTER TABLE holdfast.jobs SET (autovacuum_enabled = off)")
        await connection.execute("VACUUM ANALYZE holdfast.jobs")
        await connection.execute(FILL)
    found = await hf.examine()

    async def told() -> bool:
        nonlocal found
        found = await hf.examine()
        return bool(the(found, Check.DEAD_ROWS).facts["live"] >= 40_000)

    await wait_until(told, lambda: f"live rows: {found}")
    assert the(found, Check.INDEXES).severity is Severity.OK


@on_postgres
async def test_autovacuum_that_is_off(hf: Holdfast, store_url: str) -> None:
    await execute(store_url, "ALTER TABLE jobs SET (autovacuum_enabled = false)")
    finding = await look(hf, Check.DEAD_ROWS)
    assert finding.severity is Severity.WARNING
    assert finding.sentence.startswith("autovacuum is off for holdfast.jobs: ")
    await paste(store_url, finding.command)
    assert (await look(hf, Check.DEAD_ROWS)).severity is Severity.OK


@on_postgres
async def test_an_index_that_is_not_valid(hf: Holdfast, store_url: str) -> None:
    @hf.job
    async def greet() -> None: ...

    await hf.enqueue_many([greet.call(), greet.call()])
    async with connected(store_url) as connection:
        await connection.execute("DROP INDEX holdfast.jobs_leases")
        with pytest.raises(asyncpg.UniqueViolationError):
            await connection.execute(
                "CREATE UNIQUE INDEX CONCURRENTLY jobs_leases ON holdfast.jobs (queue)"
            )
    finding = await look(hf, Check.INDEXES)
    assert finding.severity is Severity.CRITICAL
    assert finding.sentence.startswith("index jobs_leases is invalid")
    assert finding.command == "REINDEX INDEX CONCURRENTLY holdfast.jobs_leases;"


@behind_bouncer
async def test_a_pooler_in_transaction_mode_and_its_missing_wake_ups(hf: Holdfast) -> None:
    found = await hf.examine()
    pooler, wakeups = the(found, Check.POOLER), the(found, Check.WAKEUPS)
    assert (pooler.severity, pooler.facts["mode"]) == (Severity.INFO, "transaction")
    assert wakeups.severity is Severity.INFO
    assert wakeups.sentence.startswith("wake-ups don't arrive (a pooler in transaction mode)")
    assert of(found, Check.UNREAD) == []


async def test_a_pooler_in_session_mode(own: Own) -> None:
    url = await own.database()
    program = bouncer_program() or missing("PgBouncer is not installed")
    bouncer = Bouncer(program, own.server, pool_mode="session")
    bouncer.start()
    try:
        hf = Holdfast(bouncer.url(url.rpartition("/")[2]))
        found = await hf.examine()
    finally:
        bouncer.remove()
    pooler = the(found, Check.POOLER)
    assert (pooler.severity, pooler.facts["mode"]) == (Severity.OK, "session")
    assert the(found, Check.WAKEUPS).severity is Severity.OK


async def test_a_standby_can_not_be_written_and_delivers_no_wake_ups(own: Own) -> None:
    url = await own.database()
    standby = own.server.follower("standby")
    try:
        standby.start()
        found = await Holdfast(standby.url(url.rpartition("/")[2])).examine()
    finally:
        standby.remove()
    writable, wakeups = the(found, Check.WRITABLE), the(found, Check.WAKEUPS)
    assert writable.severity is Severity.CRITICAL
    assert writable.sentence == "the database is not writable: it is a standby"
    assert wakeups.severity is Severity.WARNING
    assert "during recovery" in wakeups.sentence
    assert of(found, Check.UNREAD) == []


async def test_a_replica_that_is_only_read_is_asked_how_far_it_is_behind(own: Own) -> None:
    url = await own.database()
    standby = own.server.follower("standby")
    replica = standby.url(url.rpartition("/")[2])
    try:
        standby.start()
        found = await Holdfast(replica, read_only=True).examine()
        assert the(found, Check.REPLICA).severity is Severity.OK
        assert (of(found, Check.WRITABLE), of(found, Check.WAKEUPS)) == ([], [])
        assert of(found, Check.UNREAD) == []
        async with connected(standby.url("postgres")) as connection:
            await connection.execute("SELECT pg_wal_replay_pause()")
        async with connected(url) as connection:
            await connection.execute("CREATE TABLE news (at int)")
            await connection.execute("SELECT pg_switch_wal()")

        async def is_behind() -> bool:
            found = await Holdfast(replica, read_only=True).examine()
            return float(the(found, Check.REPLICA).facts["behind_seconds"]) > 0

        await wait_until(is_behind, "it is behind")
    finally:
        standby.remove()


async def test_who_only_reads_from_the_primary_is_not_told_that_he_can_not_write(
    postgres_url: str,
) -> None:
    found = await Holdfast(postgres_url, read_only=True).examine()
    assert (of(found, Check.WRITABLE), of(found, Check.REPLICA)) == ([], [])
    assert the(found, Check.WAKEUPS).severity is Severity.OK


@on_postgres
@needs_a_session
async def test_a_database_that_was_made_read_only(hf: Holdfast, store_url: str) -> None:
    async with connected(store_url) as connection:
        name = await connection.fetchval("SELECT current_database()")
        await connection.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
    finding = await look(hf, Check.WRITABLE)
    assert finding.severity is Severity.CRITICAL
    assert finding.sentence.endswith("default_transaction_read_only is on")


async def test_connections_that_are_nearly_used_up(own: Own) -> None:
    url = await own.database()
    async with AsyncExitStack() as stack:
        for _ in range(13):
            await stack.enter_async_context(connected(url))
        hf = Holdfast(url)

        async def warned() -> bool:  # the server itself has one at times, to vacuum
            return (await look(hf, Check.CONNECTIONS)).severity is Severity.WARNING

        await wait_until(warned, "a warning")
        for _ in range(4):
            await stack.enter_async_context(connected(url))
        finding = await look(hf, Check.CONNECTIONS)
        assert finding.severity is Severity.CRITICAL
        assert re.match(r"\d\d of 17 server connections are in use", finding.sentence)


async def test_connections_that_are_used_up_are_told_with_what_to_do(own: Own) -> None:
    url = await own.database()
    told = (
        f"PostgreSQL at {url.partition('@')[2]} has no free connection: TooManyConnectionsError:"
        " sorry, too many clients already. Lower pool_size or the number of processes,"
    )
    async with AsyncExitStack() as stack:
        last = await asyncpg.connect(url)
        with suppress(asyncpg.TooManyConnectionsError):
            while True:
                await stack.enter_async_context(connected(url))
        hf = Holdfast(url)
        stack.push_async_callback(hf.close)
        send = hf.job(_send)
        with pytest.raises(StoreUnavailable, match=re.escape(told)) as refused:
            await send.enqueue()
        assert refused.value.connections_used_up
        with pytest.raises(StoreUnavailable, match=re.escape(told)):
            await asyncio.to_thread(send.enqueue_sync)
        found = await doctor(url, "--json")
        assert found.code == 2
        (finding,) = found.findings
        assert (finding["code"], finding["severity"]) == ("connections", "critical")
        assert finding["sentence"].startswith(told)
        assert "FROM pg_stat_activity" in finding["command"]
        await last.close()

        examined = await hf.examine()

        async def connects() -> bool:
            nonlocal examined
            examined = await hf.examine()
            return bool(of(examined, Check.SCHEMA))

        await wait_until(connects, "a free connection")
        assert the(examined, Check.CONNECTIONS).severity is Severity.CRITICAL
        # The trial of a wake-up needs another one, which says nothing of wake-ups.
        assert of(examined, Check.WAKEUPS) == []


async def _send() -> None: ...


@on_postgres
async def test_settings_that_endanger_what_was_acknowledged(hf: Holdfast) -> None:
    found = {each.facts["setting"]: each for each in of(await hf.examine(), Check.DURABILITY)}
    assert {name: each.severity for name, each in found.items()} == {
        "fsync": Severity.CRITICAL,
        "full_page_writes": Severity.CRITICAL,
        "synchronous_commit": Severity.WARNING,
    }
    assert found["fsync"].command == "ALTER SYSTEM SET fsync = on; SELECT pg_reload_conf();"


@on_postgres
async def test_days_without_a_partition_and_days_that_are_past(
    hf: Holdfast, store_url: str
) -> None:
    async with connected(store_url) as connection:
        day = await connection.fetchval("SELECT (now() AT TIME ZONE 'UTC')::date + 7")
        await connection.execute(f"DROP TABLE holdfast.history_{day:%Y%m%d}")
    finding = await look(hf, Check.HISTORY)
    assert finding.severity is Severity.WARNING
    assert f"history kept until {day}" in finding.sentence
    assert finding.command == "holdfast migrate MODULE:NAME"
    await hf.migrate()
    assert (await look(hf, Check.HISTORY)).severity is Severity.OK
    async with connected(store_url) as connection:
        past = await connection.fetchval("SELECT (now() AT TIME ZONE 'UTC')::date - 5")
        assert await connection.fetchval("SELECT holdfast.add_history_day($1, 10, 1000000)", past)
    finding = await look(hf, Check.HISTORY)
    assert finding.sentence == f"history kept until {past} was not dropped"


@on_postgres
async def test_what_is_locked_is_not_waited_for(hf: Holdfast, store_url: str) -> None:
    async with connected(store_url) as connection, connection.transaction():
        await connection.execute("LOCK TABLE holdfast.queues")
        found = await hf.examine()
    unread = the(found, Check.UNREAD)
    assert unread.sentence.startswith("could not check jobs and workers: ")
    assert "lock timeout" in unread.sentence
    assert the(found, Check.INDEXES).severity is Severity.OK
