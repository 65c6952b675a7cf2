"""Every failure has the agreed code, in rows, the view, the log and the audit log alike."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from typing import Any
from uuid import UUID

import msgspec
import pytest

from holdfast import Context, LeaseLost, Snooze, State, StoreUnavailable
from holdfast_systems.passport.errors import PERMANENT_CODES, SigningKeyMissing, in_own_terms
from tests.promises.stage import both_stores
from tests.support.postgres import Server
from tests.support.processes import wait_until
from tests.support.running import seen_events, working
from tests.systems.passport.line import Line, on_sqlite
from tests.systems.passport.samples import TENANT

pytestmark = pytest.mark.heavy


class Failure(Exception):
    """An error of somebody else's code, which has a code of its own."""

    def __init__(self, code: str) -> None:
        super().__init__("the first line\nthe second")
        self.code = code


FAILURES = [
    (StoreUnavailable("no database"), "DB_UNAVAILABLE", "no database", State.QUEUED),
    (sqlite3.OperationalError("disk"), "DB_UNAVAILABLE", "disk", State.QUEUED),
    (Failure("QUEUE_UNAVAILABLE"), "QUEUE_UNAVAILABLE", "the first line", State.QUEUED),
    (SigningKeyMissing("no key"), "SIGNING_KEY_MISSING", "no key", State.FAILED),
    (Failure("QR_ENCODE_FAILED"), "QR_ENCODE_FAILED", "the first line", State.FAILED),
    (OSError("no disk"), "OSError", "OSError: no disk", State.QUEUED),
]


@both_stores
@pytest.mark.parametrize(("error", "code", "text", "state"), FAILURES, ids=str)
async def test_a_failure_is_told_alike_everywhere_and_without_stack_frames(
    line: Line, error: Exception, code: str, text: str, state: State
) -> None:
    order = await line.prepare()
    line.keys = error
    await line.passport.compile(TENANT, order)
    async with seen_events() as seen:
        await line.run()
    (job,) = await line.jobs("SIGN_PASSPORT")
    assert (job.state, job.error_code, job.error_text) == (state, code, text)
    shown = await line.passport.queries.job(TENANT, job.id)
    assert shown.last_error is not None
    assert (shown.status, shown.last_error.code, shown.last_error.text) == (
        state.upper(),
        code,
        text,
    )
    *_, failed = await line.passport.audit(TENANT, order.version_id(TENANT))
    told = json.loads(failed.payload)
    assert (failed.event_type, told["code"], told["text"]) == ("STEP_FAILED", code, text)
    logged = [event.fields for event in seen.events if event.fields.get("name") == job.name]
    assert code in {fields.get("error_code") for fields in logged}


def test_only_errors_of_others_are_renamed() -> None:
    for error in (SigningKeyMissing("none"), Snooze(3), asyncio.CancelledError()):
        assert in_own_terms(error) is error
    lost = LeaseLost(UUID(int=7), 1)
    assert in_own_terms(lost) is lost
    assert {in_own_terms(Failure(code)).code for code in PERMANENT_CODES} == set(PERMANENT_CODES)  # type: ignore[attr-defined]


class Slow(msgspec.Struct, frozen=True):
    def about(self, _tenant: str) -> None:
        return None


@on_sqlite
async def test_a_step_that_takes_too_long_is_in_the_audit_log(line: Line) -> None:
    parts = line.passport._parts
    options = parts.options("SLOW", priority=1) | {"timeout_seconds": 0.05}
    assert parts.options("SLOW", priority=1)["timeout_seconds"] == 300

    @line.hf.job(**options)
    async def slow(ctx: Context, payload: Any) -> None:
        async with parts.step(ctx, Slow, payload):
            await asyncio.Event().wait()

    job = await line.hf.for_tenant(TENANT).enqueue(slow, {})
    await line.run()
    (event,) = await line.passport.audit(TENANT, job.id)
    assert (event.aggregate_type, event.job_id) == ("Job", job.id)
    assert json.loads(event.payload)["code"] == "TIMEOUT"


async def test_a_database_that_goes_away_in_a_step_is_told_when_it_is_back(
    own_postgres: Server,
) -> None:
    line = Line(own_postgres.url("postgres"))
    await line.hf.migrate()
    went_away = asyncio.Event()
    loop = asyncio.get_running_loop()

    def stop_the_server() -> None:
        own_postgres.stop()
        loop.call_soon_threadsafe(went_away.set)

    async with line.hf:
        order = await line.prepare()
        line.before_keys = stop_the_server
        await line.passport.compile(TENANT, order)
        async with working(line.hf):
            await went_away.wait()
            await asyncio.to_thread(own_postgres.start)

            async def is_signed() -> bool:
                jobs = await line.jobs("SIGN_PASSPORT")
                return bool(jobs) and jobs[0].state is State.SUCCEEDED

            await wait_until(is_signed, "signed")
        (job,) = await line.jobs("SIGN_PASSPORT")
        attempts = await line.hf.jobs.attempts(job.id)
    assert "DB_UNAVAILABLE" in {attempt.error_code for attempt in attempts}


@both_stores
@pytest.mark.parametrize(
    ("code", "shown"),
    [("BAD_ARGUMENTS", "VALIDATION_ERROR"), ("StoreUnavailable", "DB_UNAVAILABLE")],
)
async def test_what_the_engine_itself_records_is_shown_in_the_same_terms(
    line: Line, code: str, shown: str
) -> None:
    order = await line.prepare()
    line.keys = OSError("no disk")
    await line.passport.compile(TENANT, order)
    await line.run()
    (job,) = await line.jobs("SIGN_PASSPORT")
    table = "jobs" if line.url.startswith("sqlite") else "holdfast.jobs"
    text = "what happened' || chr(10) || '  /srv/app.py:7 in run"
    if line.url.startswith("sqlite"):
        text = text.replace("chr", "char")
    async with line.hf.transaction() as connection:
        await connection.execute(
            f"UPDATE {table} SET error_code = '{code}', error_text = '{text}'"
            " WHERE name = 'SIGN_PASSPORT'"
        )
    found = await line.passport.queries.job(TENANT, job.id)
    assert found.last_error is not None
    assert (found.last_error.code, found.last_error.text) == (shown, "what happened")
