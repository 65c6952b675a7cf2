"""The command, run as people run it: as a process, on real databases, in pipes and in terminals."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from holdfast import Context, Holdfast, Job
from holdfast.cli.worker import SWITCH_SECONDS
from holdfast.domain.times import relative
from tests.support.command import run_command
from tests.support.processes import PROGRAM_SECONDS_MAX
from tests.support.terminal import Terminal

pytestmark = pytest.mark.heavy

COMMAND = [sys.executable, "-m", "holdfast.cli.main"]
APP = """
import os
import sys
from holdfast import Context, Holdfast, Permanent, Retry

hf = Holdfast(os.environ["HOLDFAST_DATABASE_URL"])

@hf.job
async def greet(ctx: Context, name: str) -> str:
    return f"hello {name}"

@hf.job(queue="images")
async def refuse(ctx: Context, why: str) -> None:
    raise Permanent(why, code="REFUSED")

@hf.job(retry=Retry.none())
async def crash(ctx: Context) -> None:
    raise RuntimeError("boom")

@hf.job
async def spread(ctx: Context, count: str) -> None:
    for number in range(int(count)):
        await greet.enqueue(str(number))

@hf.job
async def switch_seconds(ctx: Context) -> float:
    return sys.getswitchinterval()

@hf.job(retry=Retry.schedule([0.01]))
async def stumble(ctx: Context) -> None:
    if ctx.attempt == 1:
        raise RuntimeError("once")
"""

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(APP)
    return tmp_path


def environment(**values: str) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("HOLDFAST_")}
    return {**kept, **values}


@pytest.fixture
def run(folder: Path) -> Run:
    return partial(run_command, folder=folder)


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'jobs.db'}"


async def greet(ctx: Context, name: str) -> None: ...
async def refuse(ctx: Context, why: str) -> None: ...
async def crash(ctx: Context) -> None: ...
async def spread(ctx: Context, count: str) -> None: ...
async def stumble(ctx: Context) -> None: ...
async def switch_seconds(ctx: Context) -> None: ...


FUNCTIONS: dict[str, Any] = {
    each.__name__: each for each in (greet, refuse, crash, spread, stumble, switch_seconds)
}


def enqueue(url: str, name: str, *words: str, count: int = 1, **options: Any) -> list[str]:
    async def enqueue_all() -> list[Job]:
        async with Holdfast(url) as hf:
            function = hf.job(name=name)(FUNCTIONS[name]).options(**options)
            return await hf.enqueue_many([function.call(*words) for _ in range(count)])

    return [str(job.id) for job in asyncio.run(enqueue_all())]


def lines_of(ran: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    assert ran.returncode == 0, ran.stderr
    return [json.loads(line) for line in ran.stdout.splitlines()]


def test_a_worker_runs_what_waits_and_lists_tell_what_became_of_it(
    store_url: str, run: Run
) -> None:
    (good,) = enqueue(store_url, "greet", "Ada")
    (bad,) = enqueue(store_url, "refuse", "no", queue="images")
    (dead,) = enqueue(store_url, "crash", max_attempts=1)

    ran = run("worker", "app:hf", "--until-empty", url=store_url)
    assert ran.returncode == 0, ran.stderr
    assert all(json.loads(line)["time"] for line in ran.stderr.splitlines())

    states = {
        job["id"]: job["state"] for job in lines_of(run("jobs", "list", "--json", url=store_url))
    }
    assert states == {good: "succeeded", bad: "failed", dead: "dead"}
    listed = lines_of(run("dead", "list", "--json", url=store_url))
    assert [job["id"] for job in listed] == [dead, bad]
    listed = lines_of(
        run("jobs", "list", "--queue", "images", "--json", "--app", "app:hf", url=store_url)
    )
    assert [job["id"] for job in listed] == [bad]


def test_a_worker_lets_its_threads_take_turns_often(sqlite_url: str, run: Run) -> None:
    (job,) = enqueue(sqlite_url, "switch_seconds")
    run("worker", "app:hf", "--until-empty", url=sqlite_url)
    shown = run("jobs", "show", job, "--json", url=sqlite_url)
    assert json.loads(shown.stdout)["result"] == pytest.approx(SWITCH_SECONDS)


def test_show_tells_all_about_a_job(store_url: str, run: Run) -> None:
    (bad,) = enqueue(store_url, "refuse", "no\x1b[2J\nsecond line", tenant="acme")
    run("worker", "app:hf", "--until-empty", url=store_url)

    shown = run("jobs", "show", bad, url=store_url)
    assert shown.returncode == 0, shown.stderr
    for piece in ("refuse", "failed", bad, "acme", "REFUSED", "second line", "1 of 5", "\\x1b[2J"):
        assert piece in shown.stdout
    assert "\x1b" not in shown.stdout
    whole = json.loads(run("dead", "show", bad, "--json", url=store_url).stdout)
    assert whole["error_code"] == "REFUSED"
    assert [attempt["outcome"] for attempt in whole["history"]] == ["failed"]


def test_cancel_ends_jobs_and_goes_on_behind_those_that_it_can_not(
    sqlite_url: str, run: Run
) -> None:
    first, second = enqueue(sqlite_url, "greet", "Ada", count=2)
    missing = str(uuid4())
    ran = run("jobs", "cancel", first, missing, second, url=sqlite_url)
    assert ran.stdout == f"canceled {first}\ncanceled {second}\n"
    assert ran.stderr == f"holdfast: job {missing} does not exist\n"
    assert ran.returncode == 1
    assert run("jobs", "cancel", first, url=sqlite_url).returncode == 1


def test_retry_makes_a_waiting_job_due_now_and_requeues_an_ended_one(
    sqlite_url: str, run: Run
) -> None:
    (job,) = enqueue(sqlite_url, "greet", "Ada", delay_seconds=3600)
    retried = run("jobs", "retry", job, url=sqlite_url).stdout
    assert retried == f"{job} is due now; 0 of 5 attempts used (unchanged)\n"
    run("worker", "app:hf", "--until-empty", url=sqlite_url)
    ran = run("jobs", "retry", job, url=sqlite_url)
    assert re.fullmatch(
        rf"requeued {job} as \S+: 0 of 5 attempts used, due now, no idempotency key or expiry\n",
        ran.stdout,
    )
    states = [job["state"] for job in lines_of(run("jobs", "list", "--json", url=sqlite_url))]
    assert states == ["queued", "succeeded"]


def test_dead_jobs_that_match_are_requeued_together(store_url: str, run: Run) -> None:
    enqueue(store_url, "crash", count=60, max_attempts=1, tags=["nightly"])
    enqueue(store_url, "crash", max_attempts=1)
    run("worker", "app:hf", "--until-empty", url=store_url)

    refused = run("dead", "requeue", "--all", "--tag", "nightly", url=store_url)
    assert refused.returncode == 2
    assert "requeue 60 jobs" in refused.stderr
    ran = run("dead", "requeue", "--all", "--tag", "nightly", "--yes", url=store_url)
    assert (ran.returncode, ran.stderr) == (0, "holdfast: requeued 60 jobs\n")
    waiting = run("jobs", "list", "--state", "queued", "--limit", "100", "--json", url=store_url)
    assert len({job["requeued_from"] for job in lines_of(waiting)}) == 60


def test_lists_go_on_behind_a_job(sqlite_url: str, run: Run) -> None:
    ids = enqueue(sqlite_url, "greet", "Ada", count=5)
    first = run("jobs", "list", "--limit", "2", url=sqlite_url)
    assert f"--after {ids[3]}" in first.stderr
    rest = lines_of(run("jobs", "list", "--after", ids[3], "--json", url=sqlite_url))
    assert [job["id"] for job in rest] == [ids[2], ids[1], ids[0]]
    tables = run("jobs", "list", url=sqlite_url)
    assert [line.split()[0] for line in tables.stdout.splitlines()] == ["ID", *reversed(ids)]
    assert tables.stderr == ""


def test_a_reader_that_has_gone_is_told_nothing(sqlite_url: str, folder: Path) -> None:
    enqueue(sqlite_url, "greet", "x" * 2000, count=1000)
    listing = subprocess.Popen(
        [*COMMAND, "jobs", "list", "--json", "--limit", "1000", "--database", sqlite_url],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert listing.stdout is not None
    listing.stdout.readline()
    listing.stdout.close()
    assert listing.wait(PROGRAM_SECONDS_MAX) == 1
    assert listing.stderr is not None
    assert listing.stderr.read() == b""
    listing.stderr.close()


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        ("jobs list --database mysql://h/d", 1, "no store for mysql://"),
        ("jobs list --database postgresql://u:s3cr3t@127.0.0.1:1/d", 1, "127.0.0.1"),
        ("jobs list --database sqlite:///missing.db", 1, "database file missing.db does not exist"),
        ("jobs list", 2, "no database given"),
        ("jobs list --database sqlite:///a.db --app app:hf", 2, "not both"),
        ("jobs list --sate dead", 2, "--state"),
        ("jobs lsit", 2, "'list'"),
        ("jobs show 12", 2, "'12' is not a job ID"),
        ("jobs cancel --database sqlite:///app.py", 2, "no jobs given"),
        ("jobs cancel --queue q --database sqlite:///app.py", 2, "add --all"),
        ("jobs retry --all --database sqlite:///app.py", 2, "--state"),
        ("worker app", 2, "expected MODULE:NAME"),
        ("worker app.py:hf", 2, "not its file: app:hf"),
        ("worker nowhere:hf", 1, "no module named 'nowhere'"),
        ("worker good:hv", 1, "did you mean 'hf'?"),
        ("worker good:os", 1, "good:os is a module, not a Holdfast object"),
        ("worker good:hf", 1, "no jobs are defined"),
        ("worker good:hf --concurrency 0", 2, "--concurrency"),
        ("worker raises:hf", 1, "raises.py:3: ValueError: it went wrong"),
        ("worker lacks:hf", 1, "lacks.py:1: ModuleNotFoundError: No module named 'not_there'"),
        ("worker refused:hf", 1, "refused.py:2: ConfigurationError: there is no setting 'lease'"),
        ("worker broken:hf", 1, "broken.py:1: SyntaxError"),
        ("worker leaves:hf", 1, "leaves.py:1: SystemExit: 3"),
    ],
)
def test_what_goes_wrong_is_told_in_one_line(
    run: Run, folder: Path, words: str, code: int, told: str
) -> None:
    sources = {
        "good": "import os\nfrom holdfast import Holdfast\nhf = Holdfast('sqlite:///good.db')\n",
        "raises": "def f():\n    # first\n    raise ValueError('it went\\nwrong')\nf()\n",
        "refused": "from holdfast import Holdfast\nhf = Holdfast('sqlite:///good.db', lease=1)\n",
        "lacks": "import not_there\n",
        "broken": "def (\n",
        "leaves": "raise SystemExit(3)\n",
    }
    for name, source in sources.items():
        (folder / f"{name}.py").write_text(source)
    ran = run(*words.split())
    errors = [line for line in ran.stderr.splitlines() if not line.startswith("{")]
    assert len(errors) == 1, ran.stderr
    assert errors[0].startswith("holdfast: ")
    assert told in errors[0]
    assert "s3cr3t" not in ran.stderr
    assert (ran.returncode, ran.stdout) == (code, "")
    assert not (folder / "missing.db").exists()


def test_debug_shows_the_traceback_wherever_it_is_written(run: Run) -> None:
    for words in (["--debug", "worker", "nowhere:hf"], ["worker", "nowhere:hf", "--debug"]):
        ran = run(*words)
        assert "Traceback" in ran.stderr
        assert ran.returncode == 1


def test_a_traceback_shows_no_password(run: Run, folder: Path) -> None:
    (folder / "bad.py").write_text('raise ValueError("no way to postgresql://u:s3cr3t@h/d")')
    for command in ("worker", "doctor"):
        ran = run(command, "bad:hf", "--debug")
        assert "Traceback" in ran.stderr
        assert "s3cr3t" not in ran.stderr


def test_migrate_brings_an_empty_database_up_to_date(postgres_url: str, run: Run) -> None:
    checked = run("migrate", "--check", url=postgres_url)
    assert (checked.returncode, len(checked.stderr.splitlines())) == (1, 1)
    assert "holdfast migrate" in checked.stderr
    ran = run("migrate", "app:hf", url=postgres_url)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("applied ")
    assert run("migrate", "--check", url=postgres_url).returncode == 0
    assert "applied" not in run("migrate", url=postgres_url).stdout


class Process:
    """A command that goes on, with its stderr as lines to wait for."""

    def __init__(self, *words: str, cwd: Path, url: str) -> None:
        self.process = subprocess.Popen(
            [*COMMAND, *words],
            cwd=cwd,
            env=environment(HOLDFAST_DATABASE_URL=url),
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait_line(self, part: str) -> str:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if part in line:
                return line
        raise AssertionError(f"it ended without {part!r}")

    def end(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        code = self.process.wait(PROGRAM_SECONDS_MAX)
        assert self.process.stderr is not None
        self.process.stderr.close()
        return code


@pytest.fixture
def start(folder: Path, sqlite_url: str) -> Iterator[Callable[..., Process]]:
    started: list[Process] = []

    def start_process(*words: str) -> Process:
        started.append(Process(*words, cwd=folder, url=sqlite_url))
        return started[-1]

    yield start_process
    for each in started:
        if each.process.poll() is None:
            each.end(signal.SIGTERM)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_told_to_stop_ends_with_code_0(
    start: Callable[..., Process], number: signal.Signals
) -> None:
    worker = start("worker", "app:hf")
    worker.wait_line('"worker_started"')
    assert worker.end(number) == 0


def test_dev_starts_again_when_a_file_changes_and_ends_with_its_worker(
    start: Callable[..., Process], folder: Path
) -> None:
    dev = start("dev", "app:hf")
    dev.wait_line(" worker_started ")
    (folder / "app.py").write_text("raise ValueError('half written')\n")
    dev.wait_line("app.py changed")
    dev.wait_line("half written")
    dev.wait_line("will restart when a file changes")
    (folder / "app.py").write_text(APP)
    second = dev.wait_line(" worker_started ")
    worker_pid = int(re.findall(r"worker_id=\S+?:(\d+):", second)[0])
    assert dev.end(signal.SIGINT) == 0
    with pytest.raises(ProcessLookupError):
        os.kill(worker_pid, 0)


def test_logging_that_the_module_has_set_up_stays(sqlite_url: str, run: Run, folder: Path) -> None:
    own = "import logging\nlogging.basicConfig(format='mine %(message)s', level='INFO')\n"
    (folder / "app.py").write_text(own + APP)
    enqueue(sqlite_url, "greet", "Ada")
    ran = run("worker", "app:hf", "--until-empty", url=sqlite_url)
    assert all(line.startswith("mine ") for line in ran.stderr.splitlines())
    asked = run("worker", "app:hf", "--until-empty", "--log-format", "json", url=sqlite_url)
    assert any(line.startswith("{") for line in asked.stderr.splitlines())


def test_tables_fit_a_terminal_of_80_columns_and_have_colors(
    sqlite_url: str, run: Run, folder: Path
) -> None:
    enqueue(sqlite_url, "refuse", "no " * 100, queue="a-queue-with-quite-a-long-name")
    (job,) = enqueue(sqlite_url, "crash", max_attempts=1)
    run("worker", "app:hf", "--until-empty", url=sqlite_url)
    for words in (["jobs", "list"], ["dead", "list"], ["dead", "show", job]):
        terminal = Terminal([*COMMAND, *words, "--database", sqlite_url], folder, environment())
        text = terminal.read_all()
        assert terminal.end() == 0
        assert "\x1b[" in text
        plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
        assert job in plain
        assert max(len(line.rstrip("\r")) for line in plain.split("\n")) <= 80


def test_an_interrupt_at_the_question_ends_the_command(
    sqlite_url: str, run: Run, folder: Path
) -> None:
    enqueue(sqlite_url, "greet", "Ada", count=3)
    words = [*COMMAND, "jobs", "cancel", "--all", "--database", sqlite_url]
    terminal = Terminal(words, folder, environment())
    terminal.read_until("cancel 3 jobs")
    terminal.interrupt()
    terminal.read_all()
    assert terminal.end() == 130
    listed = lines_of(run("jobs", "list", "--json", url=sqlite_url))
    assert {job["state"] for job in listed} == {"queued"}


def test_a_job_that_is_not_dead_is_not_requeued_as_a_dead_one(sqlite_url: str, run: Run) -> None:
    enqueue(sqlite_url, "greet", "Ada")
    (job,) = lines_of(run("jobs", "list", "--json", url=sqlite_url))
    answer = run("dead", "requeue", job["id"], url=sqlite_url)
    assert answer.returncode == 1
    assert "is queued, not dead or failed; use: holdfast jobs retry" in answer.stderr
    assert len(lines_of(run("jobs", "list", "--json", url=sqlite_url))) == 1


def test_nothing_happens_to_all_jobs_before_somebody_said_yes(
    sqlite_url: str, run: Run, folder: Path
) -> None:
    enqueue(sqlite_url, "greet", "Ada", count=3)
    for answer, code, state in (("n", 1, "queued"), ("y", 0, "canceled")):
        words = [*COMMAND, "jobs", "cancel", "--all", "--database", sqlite_url]
        terminal = Terminal(words, folder, environment())
        terminal.read_until("cancel 3 jobs")
        terminal.write(answer + "\n")
        terminal.read_all()
        assert terminal.end() == code
        listed = lines_of(run("jobs", "list", "--json", url=sqlite_url))
        assert {job["state"] for job in listed} == {state}


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(0.4, "now"), (-3, "3 s ago"), (59, "in 59 s"), (-60, "1 min ago"), (7200, "in 2 h")],
)
def test_times_in_tables_are_told_as_people_say_them(seconds: float, told: str) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert relative(now + timedelta(seconds=seconds), now) == told


def test_help_comes_without_loading_what_it_does_not_need(folder: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-X", "importtime", *COMMAND[1:], "--help"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PROGRAM_SECONDS_MAX,
    )
    assert ran.returncode == 0
    loaded = {line.rpartition("|")[2].strip() for line in ran.stderr.splitlines()}
    assert loaded & {"rich.console", "asyncpg", "uvloop", "sqlite3"} <= {"sqlite3"}


def test_version_is_told(run: Run) -> None:
    assert re.fullmatch(r"holdfast \d+\.\d+\S*\n", run("--version").stdout)


def test_a_second_interrupt_before_the_first_was_dealt_with_ends_the_command_as_well() -> None:
    code = """
from holdfast.cli import main

def struck_twice(arguments):
    raise KeyboardInterrupt

main.run = struck_twice
main.main()
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=PROGRAM_SECONDS_MAX,
        check=False,
    )
    assert (done.returncode, done.stderr) == (130, "holdfast: interrupted\n")
