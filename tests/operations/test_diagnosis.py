"""`hf.examine` and `holdfast doctor`: what both stores have, and how it is told."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast import Check, Holdfast, Reason, Retry, Severity, State
from holdfast.cli.main import run
from holdfast.domain.diagnosis.failures import judge_failures
from holdfast.domain.diagnosis.judge import judge
from holdfast.domain.diagnosis.vitals import (
    EndedLately,
    Ends,
    Failure,
    Holder,
    Holders,
    LeftHistory,
    Patience,
    Vitals,
)
from holdfast.domain.diagnosis.words import without_values
from holdfast.domain.limits import HISTORY_REST_BYTES_MAX
from holdfast.domain.workers import Load
from holdfast.stores.migrations import steps
from holdfast.stores.protocol import Claim
from holdfast.testing.conformance.workers import worker
from tests.promises.stage import Stage, both_stores
from tests.support.command import run_command
from tests.support.examining import (
    SHELL,
    doctor,
    look,
    of,
    paste,
    surroundings,
    the,
)
from tests.support.forks import ROOT
from tests.support.pages import assert_listed
from tests.support.processes import wait_until
from tests.support.running import execute
from tests.support.stores import full_store
from tests.support.terminal import Terminal

pytestmark = pytest.mark.heavy

ON_HISTORY = {"s": "", "p": " ON history"}  # SQLite's triggers have no table in their name


@pytest.fixture
async def stage(store_url: str, tmp_path: Path) -> AsyncIterator[Stage]:
    made = Stage(store_url, tmp_path)
    yield made
    await made.close()


def newest(store_url: str) -> int:
    return steps("sqlite" if store_url.startswith("sqlite") else "postgres")[-1].version


@both_stores
async def test_an_old_schema_is_found_and_left_alone(store_url: str) -> None:
    await Holdfast(store_url).migrate()
    needed = newest(store_url)
    await execute(store_url, f"DELETE FROM schema_version WHERE version = {needed}")
    for _ in range(2):
        found = await Holdfast(store_url).examine()
        finding = the(found, Check.SCHEMA)
        assert finding.severity is Severity.CRITICAL
        assert finding.sentence == (
            f"the schema is at version {needed - 1}; this code needs {needed}"
        )
        assert finding.command == "holdfast migrate MODULE:NAME"
    # What does not depend on it is told all the same.
    assert the(found, Check.INDEXES).severity is Severity.OK
    assert of(found, Check.WORKERS) == []


@both_stores
@pytest.mark.parametrize(
    ("newer", "severity"), [(1, Severity.INFO), (2, Severity.CRITICAL)], ids=["next", "far"]
)
async def test_a_schema_of_the_future(store_url: str, newer: int, severity: Severity) -> None:
    await Holdfast(store_url).migrate()
    version = newest(store_url) + newer
    await execute(
        store_url,
        f"INSERT INTO schema_version VALUES ({version}, 'any', "
        + ("0)" if store_url.startswith("sqlite") else "now())"),
    )
    finding = await look(Holdfast(store_url), Check.SCHEMA)
    assert finding.severity is severity
    assert finding.sentence.startswith(f"the schema is at version {version}; this code knows")
    assert finding.advice == "upgrade holdfast here"


@both_stores
@pytest.mark.parametrize("index", ["jobs_expiring", "history_tenant"])
async def test_an_index_that_is_missing_can_be_made_by_the_advice(
    hf: Holdfast, store_url: str, index: str
) -> None:
    await execute(store_url, f"DROP INDEX {index}")
    finding = await look(hf, Check.INDEXES)
    assert finding.severity is Severity.CRITICAL
    assert finding.sentence.startswith(f"index {index} is missing")
    await paste(store_url, finding.command)
    assert (await look(hf, Check.INDEXES)).severity is Severity.OK


@both_stores
async def test_no_worker_at_all(hf: Holdfast) -> None:
    finding = await look(hf, Check.WORKERS)
    assert (finding.severity, finding.sentence) == (Severity.INFO, "there are no live workers")


@both_stores
async def test_the_stuck_lease_of_a_killed_worker_and_the_worker_itself(stage: Stage) -> None:
    await stage.hf.migrate()
    killed = stage.worker(lease_seconds=1)
    job = await stage.jobs.gated.enqueue("go")
    await stage.noted("start", job.id)

    async def there() -> bool:
        return bool(await stage.hf.workers.list())

    await wait_until(there, "a worker")
    (seen,) = await stage.hf.workers.list()
    killed.kill()
    hasty = Holdfast(stage.url, reclaim_seconds=0.3)  # whose patience is five times as long
    found = await hasty.examine()

    async def stuck() -> bool:
        nonlocal found
        found = await hasty.examine()
        (lost,) = of(found, Check.WORKERS)
        return the(found, Check.LEASES).severity is not Severity.OK and bool(lost.facts["lost"])

    await wait_until(stuck, lambda: f"stuck: {found}")
    leases, workers = the(found, Check.LEASES), the(found, Check.WORKERS)
    assert leases.severity is Severity.CRITICAL
    assert leases.sentence.startswith("1 lease expired up to ")
    assert leases.sentence.endswith(f" ago, and nobody reclaimed the job; leased by {seen.id}")
    assert leases.advice == "start a worker: it reclaims them within seconds"
    assert workers.severity is Severity.WARNING
    assert workers.sentence.startswith(
        f"1 worker disappeared without shutting down, last seen: {seen.id} ("
    )


@both_stores
async def test_a_queue_with_due_jobs_and_no_worker(hf: Holdfast) -> None:
    @hf.job(queue="big mail")
    async def send() -> None: ...

    await hf.enqueue_many([send.call(), send.call()])
    await send.options(queue="later", delay_seconds=600).enqueue()
    await (await full_store(hf)).register(worker(queues={"images": None}), Load())
    finding = await look(hf, Check.QUEUES)
    assert finding.severity is Severity.CRITICAL
    assert finding.sentence.startswith(
        "no live worker serves queue big mail, where 2 jobs wait, the oldest for "
    )
    assert finding.command == "holdfast worker MODULE:NAME --queues 'big mail'"


@pytest.mark.parametrize("queue", ["a,b", "images:5", "*", "mail?", " mail"])
async def test_a_queue_that_no_list_can_name_is_left_to_a_worker_for_all(
    local_hf: Holdfast, queue: str
) -> None:
    @local_hf.job(queue=queue)
    async def send() -> None: ...

    await send.enqueue()
    command = (await look(local_hf, Check.QUEUES)).command
    assert command == "holdfast worker MODULE:NAME"


@both_stores
async def test_a_waiting_name_that_no_live_worker_knows(hf: Holdfast) -> None:
    @hf.job
    async def renamed() -> None: ...

    await renamed.enqueue()
    store = await full_store(hf)
    await store.register(
        worker(id="knows, serves another", queues={"a": None}, names=hf.names), Load()
    )
    await store.register(worker(id="serves", queues=None, names=("send",)), Load())
    finding = await look(hf, Check.NAMES)
    assert finding.severity is Severity.CRITICAL
    assert finding.sentence.startswith(
        "no live worker of queue default knows the job name renamed, and 1 job waits, the oldest"
    )
    assert "aliases=['renamed']" in (finding.advice or "")


@both_stores
async def test_workers_of_different_versions(hf: Holdfast) -> None:
    store = await full_store(hf)
    for number, version in enumerate(("1.0", "1.1", "1.1")):
        seen = worker(id=f"worker {number}", app_version=version, up_seconds=90.0 - number)
        await store.register(seen, Load())
    finding = await look(hf, Check.VERSIONS)
    assert finding.severity is Severity.INFO
    assert finding.sentence.endswith(": 1.0 (1 worker on host); 1.1 (2 workers on host)")


@both_stores
async def test_jobs_that_a_worker_handed_back_are_found_while_they_wait(
    hf: Holdfast, store_url: str
) -> None:
    @hf.job(name="send", queue="mail")
    async def send(to: str, subject: str = "") -> None: ...

    old = Holdfast(store_url)

    @old.job(name="send", queue="mail")
    async def send_before(to: str) -> None: ...

    for priority in (0, 1):
        await send.options(priority=priority).enqueue("ada", "hello")
    await send.options(delay_seconds=30).enqueue("bob", "not handed back")
    assert (await look(hf, Check.ARGUMENTS)).severity is Severity.OK
    async with old:
        report = await old.run_due()
    assert report.handed_back == 2
    finding = await look(hf, Check.ARGUMENTS)
    assert finding.severity is Severity.WARNING
    assert finding.facts == {
        "queue": "mail",
        "name": "send",
        "jobs": 2,
        "releases": 1,
        "releases_max": 100,
        "error_text": "send(to) has no argument 'subject'",
    }


@both_stores
async def test_a_paused_queue_with_and_without_due_jobs(hf: Holdfast, store_url: str) -> None:
    @hf.job(queue="mail")
    async def send() -> None: ...

    await hf.jobs.counts()
    now = "0" if store_url.startswith("sqlite") else "'epoch'"
    await execute(
        store_url,
        "INSERT INTO queues (name, paused_at, paused_by, paused_because)"
        f" VALUES ('mail', {now}, 'Ada', 'the provider is down')",
    )
    idle = await look(hf, Check.PAUSED)
    assert idle.severity is Severity.INFO
    await send.enqueue()
    found = await hf.examine()
    finding = the(found, Check.PAUSED)
    assert finding.severity is Severity.WARNING
    assert re.match(
        r"queue mail has been paused by Ada \(the provider is down\) since"
        r" 1970-01-01T00:00:00\.000Z \(\d+ d ago\): 1 due job waits$",
        finding.sentence,
    )
    assert finding.command == "holdfast queues resume --app MODULE:NAME mail"
    # It waits for whoever paused it, not for a worker.
    assert the(found, Check.QUEUES).severity is Severity.OK


@both_stores
async def test_a_queue_whose_cap_is_0_waits_for_whoever_capped_it(hf: Holdfast) -> None:
    @hf.job(queue="big mail")
    async def send() -> None: ...

    await hf.queues.cap("big mail", 0)
    assert (await look(hf, Check.CAPS)).severity is Severity.OK
    job = await send.enqueue()
    found = await hf.examine()
    finding = the(found, Check.CAPS)
    assert finding.severity is Severity.WARNING
    assert finding.sentence.startswith(
        "queue big mail can't run any jobs: its cap is 0; 1 job waits, the oldest for "
    )
    assert finding.command == "holdfast queues cap --app MODULE:NAME 'big mail' N"
    # No worker could start it.
    assert the(found, Check.QUEUES).severity is Severity.OK
    why = await hf.jobs.why(job.id)
    assert why.code is Reason.QUEUE_FULL
    assert why.sentence.endswith("cap is 0; to raise it: holdfast queues cap 'big mail' N")


@both_stores
async def test_a_cap_that_is_reached_is_not_taken_for_a_want_of_workers(hf: Holdfast) -> None:
    @hf.job
    async def send() -> None: ...

    await hf.queues.cap("default", 1)
    await hf.enqueue_many([send.call(), send.call()])
    store = await full_store(hf)
    await store.claim(Claim(worker="any", limit=5, lease_seconds=60, names=hf.names))
    await store.register(worker(queues=None, names=hf.names, concurrency=1), Load(1))
    found = await hf.examine()
    finding = the(found, Check.CAPS)
    assert finding.severity is Severity.INFO
    assert finding.sentence.startswith(
        "queue default has reached its cap: 1 of at most 1 jobs are running; 1 job waits, the"
        " oldest for "
    )
    assert the(found, Check.SLOTS).severity is Severity.OK


@both_stores
async def test_workers_without_a_free_slot_are_told_with_what_to_look_at(
    hf: Holdfast, store_url: str
) -> None:
    @hf.job(queue="mail")
    async def send() -> None: ...

    jobs = await hf.enqueue_many([send.call(), send.call()])
    store = await full_store(hf)
    full = worker(id="full", queues=None, names=hf.names, concurrency=4)
    await store.register(full, Load(4))
    limited = worker(id="limited", queues={"mail": 2}, names=hf.names, concurrency=4)
    await store.register(limited, Load(2, ("mail",)))
    found = await hf.examine()
    finding = the(found, Check.SLOTS)
    assert finding.severity is Severity.INFO
    assert finding.sentence.startswith(
        "2 workers of queue mail have no free slot, and 2 jobs wait, the oldest for "
    )
    assert finding.command == "holdfast jobs list --app MODULE:NAME --state running --queue mail"
    assert the(found, Check.QUEUES).severity is Severity.OK
    why = await hf.jobs.why(jobs[0].id)
    assert why.code is Reason.BUSY
    assert why.sentence.endswith(
        "; add slots, start more workers, or look for long-running jobs:"
        " holdfast jobs list --state running --queue mail"
    )
    hour = "3600000000" if store_url.startswith("sqlite") else "interval '1 hour'"
    await execute(store_url, f"UPDATE jobs SET run_at = run_at - {hour}")
    assert (await look(hf, Check.SLOTS)).severity is Severity.WARNING
    await store.register(full, Load(3))
    assert (await look(hf, Check.SLOTS)).severity is Severity.OK


@both_stores
async def test_an_open_breaker(hf: Holdfast, store_url: str) -> None:
    await hf.jobs.counts()
    now = "0" if store_url.startswith("sqlite") else "'epoch'"
    await execute(
        store_url,
        "INSERT INTO breakers (key, window_seconds, probe_seconds, opened_at, opened_because,"
        f" changed_at) VALUES ('gateway', 60, 30, {now}, 'GW_5XX', {now})",
    )
    finding = await look(hf, Check.BREAKERS)
    assert finding.severity is Severity.WARNING
    assert finding.sentence.startswith("breaker gateway was opened (GW_5XX) at 1970-01-01T")
    assert finding.sentence.endswith("and has parked 0 jobs")


@both_stores
async def test_many_jobs_that_died_are_a_warning_with_the_command_to_look_at_them(
    hf: Holdfast, store_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    @hf.job(queue="big mail", retry=Retry.none())
    async def send(number: int) -> None:
        raise ConnectionError(f"mail-{number}.example refused") if number else ValueError("none")

    @hf.job
    async def fine() -> None: ...

    await hf.enqueue_many([fine.call() for _ in range(20)])
    await hf.run_worker(until_empty=True, concurrency=100)
    assert (await look(hf, Check.FAILURES)).severity is Severity.OK
    await hf.enqueue_many([send.call(number) for number in range(500)])
    await hf.run_worker(until_empty=True, concurrency=100)
    finding = await look(hf, Check.FAILURES)
    assert finding.severity is Severity.WARNING
    assert finding.sentence == (
        "500 of 500 jobs of queue big mail that ended in the last hour failed or died, 499 of them"
        " send with ConnectionError: * refused"
    )
    command = "holdfast dead groups --app MODULE:NAME --since 1h --queue 'big mail'"
    assert finding.command == command
    told = await doctor(store_url, "--json")
    assert told.code == (1 if store_url.startswith("sqlite") else 2)  # a server without fsync
    words = shlex.split(command.replace("--app MODULE:NAME", "--json"))[1:]
    done = await asyncio.to_thread(run_command, *words, folder=Path.cwd(), url=store_url)
    groups = [json.loads(line) for line in done.stdout.splitlines()]
    assert [each["jobs"] for each in groups] == [499, 1]
    assert groups[0]["fingerprint"] == finding.facts["fingerprint"]
    requeue = (finding.advice or "").partition("requeue them with ")[2].partition(";")[0]
    words = shlex.split(requeue.replace("--app MODULE:NAME", "--dry-run --json"))[1:]
    done = await asyncio.to_thread(run_command, *words, folder=Path.cwd(), url=store_url)
    assert json.loads(done.stdout)["jobs"] == 499  # those whose cause it names
    # What is long past is no news.
    hours = "7200000000" if store_url.startswith("sqlite") else "interval '2 hours'"
    await execute(store_url, "DROP TRIGGER history_never_changes" + ON_HISTORY[store_url[0]])
    await execute(store_url, f"UPDATE history SET finished_at = finished_at - {hours}")
    assert (await look(hf, Check.FAILURES)).severity is Severity.OK


def ended(queue: str, failed: int, succeeded: int) -> EndedLately:
    """As stores tell it: what ended lately, and the newest failures."""
    ends = [(State.DEAD, failed), (State.SUCCEEDED, succeeded)]
    failure = Failure(queue=queue, name="send", error_code=None, error_text=None)
    return EndedLately(
        ends=[Ends(queue=queue, state=state, lately=True, jobs=jobs) for state, jobs in ends],
        failures=[failure] * failed,
    )


@pytest.mark.parametrize(
    ("failed", "succeeded", "told"),
    [
        (9, 0, None),
        (10, 0, "10 of 10 jobs of queue mail that ended in the last hour failed or died"),
        (10, 91, None),
        (99, 900, None),
        (100, 5000, "100 of 5,100 jobs of queue mail that ended"),
        (100, 9900, "100 jobs of queue mail in the last hour failed or died"),
    ],
)
def test_failures_count_by_their_number_and_by_their_share(
    failed: int, succeeded: int, told: str | None
) -> None:
    (finding,) = judge_failures(ended("mail", failed, succeeded))
    assert (finding.severity is Severity.OK) == (told is None)
    assert finding.sentence.startswith(told or "no queue had many failures")


async def test_jobs_without_a_time_out(local_hf: Holdfast) -> None:
    @local_hf.job(timeout_seconds=5)
    async def bounded() -> None: ...

    assert (await look(local_hf, Check.TIMEOUTS)).severity is Severity.OK

    @local_hf.job
    async def endless() -> None: ...

    finding = await look(local_hf, Check.TIMEOUTS)
    assert finding.severity is Severity.INFO
    assert finding.sentence.endswith("never answers: endless")


@both_stores
async def test_ended_jobs_that_upkeep_has_left(hf: Holdfast, store_url: str) -> None:
    @hf.job
    async def send() -> None: ...

    await send.enqueue()
    await execute(store_url, "UPDATE jobs SET state = 'canceled', finished_at = run_at")
    finding = await look(hf, Check.HISTORY)
    assert finding.severity is Severity.WARNING
    assert finding.sentence.startswith("1 ended job is still among the live jobs")
    await (await full_store(hf)).tidy(10)
    assert (await look(hf, Check.HISTORY)).severity is Severity.OK


@pytest.mark.parametrize(
    ("harm", "code"),
    [(None, 0), ("PRAGMA journal_mode = DELETE", 1), ("DROP INDEX jobs_expiring", 2)],
    ids=["fine", "warning", "critical"],
)
def test_the_exit_code_tells_how_bad_it_is(
    local_url: str, harm: str | None, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["migrate", "--database", local_url]) == 0
    if harm:
        asyncio.run(execute(local_url, harm))
    capsys.readouterr()
    assert run(["doctor", "--database", local_url]) == code
    first = capsys.readouterr().out.splitlines()[3]
    assert first.startswith(["info     workers", "WARNING  journal", "CRITICAL indexes"][code])
    assert run(["doctor", "--database", local_url, "--json"]) == code
    whole = json.loads(capsys.readouterr().out)
    assert whole["exit_code"] == code
    assert whole["severity"] == whole["findings"][0]["severity"]
    assert set(whole["findings"][0]) == {
        "code", "severity", "sentence", "advice", "command", "facts",
    }  # fmt: skip


@pytest.mark.parametrize(
    "words",
    [
        ["--database", "postgresql://u@corp:s3cr3t@h/d"],
        ["no_such_module:hf"],
        ["--app", "no_such_module:hf"],
    ],
    ids=["address", "module", "app"],
)
def test_what_can_not_be_begun_is_critical_and_told_as_any_other_finding(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["doctor", *words]) == 2
    assert "CRITICAL reachable" in (told := capsys.readouterr().out)
    assert run(["doctor", *words, "--json"]) == 2
    whole = capsys.readouterr().out
    assert json.loads(whole)["findings"][0]["code"] == "reachable"
    assert "s3cr3t" not in told + whole


def test_no_password_that_somebody_wrote_down_is_shown(
    local_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["migrate", "--database", local_url]) == 0
    why = ["--because", "see https://bob:s3cr3t@wiki/x"]
    assert run(["queues", "pause", "mail", *why, "--database", local_url]) == 0
    capsys.readouterr()
    for form in ([], ["--json"]):
        assert run(["doctor", "--database", local_url, *form]) == 0
        told = capsys.readouterr().out
        assert "bob:***@wiki" in told
        assert "s3cr3t" not in told


APP = """
from holdfast import Holdfast

hf = Holdfast()

@hf.job
async def endless_and_with_a_name_that_is_long_enough_to_be_wrapped(): ...
"""


@pytest.mark.parametrize(("columns", "widest"), [(200, 80), (80, 80), (50, 50)])
async def test_the_report_is_80_columns_wide_and_fits_into_a_narrow_terminal(
    columns: int, widest: int, local_url: str, tmp_path: Path
) -> None:
    (tmp_path / "app.py").write_text(APP)
    await Holdfast(local_url).migrate()
    await execute(local_url, "DROP INDEX jobs_expiring")
    words = [*SHELL, "doctor", "app:hf"]
    terminal = Terminal(words, tmp_path, surroundings(local_url), columns=columns)
    text = await asyncio.to_thread(terminal.read_all)
    assert terminal.end() == 2
    assert "\x1b[1;31mCRITICAL" in text
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text).replace("\r", "")
    lines = plain.splitlines()
    # Only what is to be pasted is left in one piece.
    long = [line for line in lines[1:] if len(line) > widest and " " in line[9:].strip()]
    assert [line[9:31] for line in long] == ["   CREATE INDEX jobs_e"]
    marks = [line.split()[0] for line in lines[1:] if line[:1].isalpha()]
    assert marks == sorted(marks, key=["CRITICAL", "WARNING", "info", "ok"].index)
    assert "            holdfast worker app:hf" in lines


async def test_commands_and_advice_name_the_app_that_was_examined(
    local_url: str, tmp_path: Path
) -> None:
    (tmp_path / "app.py").write_text(APP)
    hf = Holdfast(local_url)

    @hf.job(retry=Retry.none())
    async def broken() -> None:
        raise ConnectionError("refused")

    await hf.enqueue_many([broken.call() for _ in range(100)])
    await hf.run_worker(until_empty=True)
    await hf.close()
    done = await asyncio.to_thread(
        run_command, "doctor", "app:hf", "--json", folder=tmp_path, url=local_url
    )
    assert "dead requeue --app app:hf" in done.stdout
    assert "MODULE:NAME" not in done.stdout


@pytest.mark.parametrize(
    ("sql", "shown"),
    [
        ("SELECT  'a''b', E'it\\'s', x'ff'\n FROM t1", "SELECT ?, ?, ? FROM t1"),
        ("WHERE id = 4711 AND f = 1.5e3 AND g = $1", "WHERE id = ? AND f = ? AND g = $1"),
        ("DO $tag$ secret $tag$; SELECT $$ x", "DO ?; SELECT ?"),
        ("SELECT /* key: hunter2 */ 1 -- hunter2", "SELECT ?"),
        ("SELECT 1 /* a /* b */ hunter2 */ FROM t", "SELECT ? FROM t"),
        ("SELECT 1 /* hunter2", "SELECT ?"),
        ('SELECT "it\'s a name" FROM "t 2"', 'SELECT "it\'s a name" FROM "t 2"'),
        ("INSERT INTO t VALUES ('cut off in the mid", "INSERT INTO t VALUES (?"),
        ("SELECT " + "a, " * 100, "SELECT " + ("a, " * 100)[:192] + "…"),
    ],
)
def test_statements_of_others_are_shown_without_values(sql: str, shown: str) -> None:
    assert without_values(sql) == shown


def holder(age_seconds: float) -> Vitals:
    held = Holder(kind="process", id="7", age_seconds=age_seconds)
    return Vitals(
        product="",
        answer_seconds=0.0,
        holders=Holders(holders=[held], hidden=0, user="ada"),
        history=LeftHistory(rest_bytes=HISTORY_REST_BYTES_MAX + 1),
    )


def test_a_transaction_becomes_critical_with_its_age_and_a_large_rest_is_told() -> None:
    patience = Patience(transaction_seconds=300.0, stuck_seconds=20.0)
    for age_seconds, severity in ((301, Severity.WARNING), (3601, Severity.CRITICAL)):
        found = {each.code: each for each in judge(holder(age_seconds), patience)}
        assert found[Check.VACUUM].severity is severity
    assert found[Check.HISTORY].sentence.startswith("holdfast.history_rest is 512 MB")


@pytest.mark.parametrize(
    ("seconds", "severity", "sentence"),
    [
        (0.2, Severity.OK, "this replica is up to date"),
        (90.0, Severity.WARNING, "this replica is 1 min behind the primary"),
    ],
)
def test_a_replica_that_is_far_behind_is_told(
    seconds: float, severity: Severity, sentence: str
) -> None:
    vitals = Vitals(product="", answer_seconds=0.0, behind_seconds=seconds)
    patience = Patience(transaction_seconds=300.0, stuck_seconds=20.0)
    (found,) = [each for each in judge(vitals, patience) if each.code is Check.REPLICA]
    assert found.severity is severity
    assert found.sentence.startswith(sentence)


def test_the_reference_lists_every_check() -> None:
    page = "docs/reference/doctor.md"
    headings = re.findall(r"^## `(\w+)`$", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE)
    assert_listed(page, headings, [str(each) for each in Check])
