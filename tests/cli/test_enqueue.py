"""`holdfast jobs enqueue`, run as people and scripts run it."""

from __future__ import annotations

import json
import re
import signal
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli.enqueue import add_texts
from holdfast.domain.signature import Signature
from tests.cli.test_cli import COMMAND, Run, environment, lines_of
from tests.promises.stage import both_stores
from tests.support.command import run_command
from tests.support.terminal import Terminal

pytestmark = pytest.mark.heavy

APP = """
import os
from holdfast import Context, Holdfast, Permanent

hf = Holdfast(os.environ["HOLDFAST_DATABASE_URL"])

@hf.job(queue="math", aliases=["plus"], tags=["quick"])
async def add(ctx: Context, a: int, b: int = 0) -> int:
    await ctx.progress({"added": a})
    return a + b

@hf.job
async def note(text: str, lines: list[int] | None = None) -> str:
    return text

@hf.job
async def refuse(why: str) -> None:
    raise Permanent(why, code="REFUSED")
"""
ID = r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(APP)
    return tmp_path


@pytest.fixture
def run(folder: Path) -> Run:
    return partial(run_command, folder=folder)


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'jobs.db'}"


@both_stores
def test_a_job_is_enqueued_by_its_name_and_what_it_says_to_run_next_shows_it(
    store_url: str, run: Run
) -> None:
    ran = run("jobs", "enqueue", "add", "--set", "a=7", "--app", "app:hf", url=store_url)
    assert ran.returncode == 0, ran.stderr
    assert re.fullmatch(f"{ID}\n", ran.stdout)
    said = "holdfast: enqueued add in queue math, due now. See it with: holdfast "
    assert ran.stderr.startswith(said)
    words = ran.stderr.removeprefix(said).split()
    assert words == ["jobs", "show", "--app", "app:hf", ran.stdout.strip()]
    shown = json.loads(run(*words, "--json", url=store_url).stdout)
    assert (shown["name"], shown["state"], shown["arguments"]) == ("add", "queued", {"a": 7})
    assert (shown["queue"], shown["tags"]) == ("math", ["quick"])


def test_every_option_reaches_the_job(sqlite_url: str, run: Run) -> None:
    options = "--queue slow --priority -5 --delay 2h --tenant acme --key k1 --correlation-id c1"
    ran = run(
        *("jobs", "enqueue", "plus", "--arguments", '{"a": 1, "b": 2}', "--set", "b=3"),
        *(*options.split(), "--tag", "x", "--tag", "y", "--max-attempts", "2", "--json"),
        url=sqlite_url,
        environment={"HOLDFAST_APP": "app:hf"},
    )
    assert ran.returncode == 0, ran.stderr
    assert ", due in 2 h. See it with: holdfast jobs show 0" in ran.stderr
    job = json.loads(ran.stdout)
    expected = {
        "name": "add",
        "arguments": {"a": 1, "b": 3},
        "queue": "slow",
        "priority": -5,
        "tenant": "acme",
        "idempotency_key": "k1",
        "correlation_id": "c1",
        "tags": ["x", "y"],
        "max_attempts": 2,
    }
    assert {name: job[name] for name in expected} == expected
    for option in (("--correlation-id", "c1"), ("--tenant", "acme")):
        (listed,) = lines_of(run("jobs", "list", *option, "--json", url=sqlite_url))
        assert listed["id"] == job["id"]
    assert lines_of(run("jobs", "list", "--correlation-id", "c2", "--json", url=sqlite_url)) == []


@pytest.mark.parametrize("source", ["-", "given.json", "in line"])
def test_arguments_come_from_stdin_from_a_file_or_from_the_command_line(
    source: str, sqlite_url: str, folder: Path
) -> None:
    given = '{"a": 5}'
    (folder / "given.json").write_text(given)
    words = ["jobs", "enqueue", "add", "--app", "app:hf", "--json", "--arguments"]
    words.append(given if source == "in line" else source)
    if source == "-":
        shell = f"echo '{given}' | {' '.join([*COMMAND, *words])}"
        terminal = Terminal(
            ["sh", "-c", shell], folder, environment(HOLDFAST_DATABASE_URL=sqlite_url), columns=300
        )
        assert '"a": 5' in terminal.read_all()
        assert terminal.end() == 0
        return
    ran = run_command(*words, folder=folder, url=sqlite_url)
    assert json.loads(ran.stdout)["arguments"] == {"a": 5}


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        ("ad --set a=1", 1, "no job is named 'ad'; did you mean 'add'? The jobs are: add, note, p"),
        ("zzz", 1, "no job is named 'zzz'. The jobs are: add, note, plus, refuse"),
        ("add", 1, "add: missing required argument a"),
        ("add --set a=seven", 1, "add: argument a: Expected int, got str"),
        ('note --set text=x --set lines=[1,"b"]', 1, "note: argument lines[1]: Expected int, got"),
        ("add --set c=1", 1, "add: got an unexpected argument c"),
        ("add --set a", 2, "expected --set NAME=VALUE, got 'a'"),
        ("add --arguments [1]", 1, "can't read [1]: No such file or directory"),
        ("add --arguments {", 1, "--arguments: invalid JSON"),
        ("add --set a=1 --delay 5", 2, "'5' is not a length of time; use 90s, 15min, 2h or 3d"),
        ("add --set a=1 --at soon", 2, "'soon' is not a time; use one like 2026-11-16T03:00Z"),
        ("add --set a=1 --delay 5s --at 2026-11-16", 1, "pass run_at or delay_seconds, not both"),
        ("add --set a=1 --priority 99999", 1, "priority must be"),
    ],
)
def test_what_is_wrong_is_told_in_one_line_and_nothing_is_enqueued(
    words: str, code: int, told: str, sqlite_url: str, run: Run
) -> None:
    ran = run("jobs", "enqueue", *words.split(), "--app", "app:hf", url=sqlite_url)
    assert (ran.returncode, ran.stdout) == (code, "")
    assert told in ran.stderr
    assert ran.stderr.count("\n") == 1
    assert not Path(sqlite_url.removeprefix("sqlite:///")).exists()


def test_without_an_app_nobody_knows_the_jobs(sqlite_url: str, run: Run) -> None:
    ran = run("jobs", "enqueue", "add", url=sqlite_url)
    assert ran.returncode == 2
    assert "no app given; pass --app MODULE:NAME, or set $HOLDFAST_APP" in ran.stderr


@both_stores
def test_a_key_that_is_used_twice_makes_one_job_and_says_so(store_url: str, run: Run) -> None:
    words = ("jobs", "enqueue", "add", "--set", "a=1", "--key", "once", "--app", "app:hf")
    first, second = run(*words, url=store_url), run(*words, url=store_url)
    assert "enqueued add in queue math" in first.stderr
    assert "nothing was enqueued: the key 'once' belongs to a queued job" in second.stderr
    assert (first.returncode, second.returncode) == (0, 0)
    assert first.stdout == second.stdout


@both_stores
def test_a_wait_tells_what_happens_and_prints_the_result(store_url: str, folder: Path) -> None:
    variables = environment(HOLDFAST_DATABASE_URL=store_url, HOLDFAST_APP="app:hf")
    words = ["jobs", "enqueue", "add", "--arguments", '{"a": 20, "b": 22}', "--wait"]
    waiting = Terminal([*COMMAND, *words], folder, variables, columns=200)
    waiting.read_until("no live worker serves queue math")
    worker = run_command("worker", "app:hf", "--until-empty", folder=folder, url=store_url)
    assert worker.returncode == 0, worker.stderr
    assert waiting.read_all().splitlines()[-1].endswith("42")
    assert waiting.end() == 0


def test_a_wait_in_a_pipe_tells_each_change_once(sqlite_url: str, folder: Path, run: Run) -> None:
    enqueue = ("jobs", "enqueue", "refuse", "--set", "why=no", "--wait", "--app", "app:hf")
    script = f"({' '.join([*COMMAND, *enqueue])}) 2>&1 | cat; echo over"
    variables = environment(HOLDFAST_DATABASE_URL=sqlite_url)
    waiting = Terminal(["sh", "-c", script], folder, variables, columns=300)
    text = waiting.read_until("no live worker serves queue default")
    assert run("worker", "app:hf", "--until-empty", url=sqlite_url).returncode == 0
    text += waiting.read_all()
    assert waiting.end() == 0
    assert text.count("no live worker") == 1
    assert "holdfast: the job ended as failed: REFUSED: no. See it with: holdfast jobs show" in text


def test_a_wait_for_a_job_that_fails_ends_with_code_1(sqlite_url: str, folder: Path) -> None:
    variables = environment(HOLDFAST_DATABASE_URL=sqlite_url, HOLDFAST_APP="app:hf")
    words = ["jobs", "enqueue", "refuse", "--set", "why=no", "--wait"]
    waiting = Terminal([*COMMAND, *words], folder, variables, columns=200)
    waiting.read_until("no live worker")
    run_command("worker", "app:hf", "--until-empty", folder=folder, url=sqlite_url)
    assert "the job ended as failed: REFUSED: no" in waiting.read_all()
    assert waiting.end() == 1


def test_an_interrupted_wait_says_that_the_job_was_not_canceled(
    sqlite_url: str, folder: Path, run: Run
) -> None:
    variables = environment(HOLDFAST_DATABASE_URL=sqlite_url)
    words = ["jobs", "enqueue", "add", "--set", "a=1", "--wait", "--app", "app:hf"]
    waiting = Terminal([*COMMAND, *words], folder, variables, columns=200)
    waiting.read_until("no live worker")
    waiting.send(signal.SIGINT)
    assert "stopped waiting; the job was not canceled. See it with: holdfast" in waiting.read_all()
    assert waiting.end() == 130
    (job,) = lines_of(run("jobs", "list", "--json", url=sqlite_url))
    assert job["state"] == "queued"


def test_a_value_is_json_if_the_handler_accepts_that_and_else_text() -> None:
    def handler(
        text: str,
        number: int,
        either: int | str,
        maybe: str | None,
        numbers: list[int],
        anything: Any,
    ) -> None: ...

    texts = (
        *("text=7", "number=7", "either=7", "maybe=null", "numbers=[1, 2]", "anything={}"),
        "unknown=true",
    )
    assert add_texts({"text": "replaced", "kept": 1}, texts, Signature.of(handler)) == {
        "text": "7",
        "kept": 1,
        "number": 7,
        "either": 7,
        "maybe": None,
        "numbers": [1, 2],
        "anything": {},
        "unknown": True,
    }
    assert add_texts({}, ["text=a=b"], Signature.of(handler)) == {"text": "a=b"}
    assert add_texts({}, ["text="], Signature.of(handler)) == {"text": ""}
    assert add_texts({}, ['text="7"'], Signature.of(handler)) == {"text": "7"}


def test_a_decimal_is_stored_digit_by_digit() -> None:
    def handler(amount: Decimal, rate: float, anything: Any) -> None: ...

    texts = ["amount=12345678901234567890.10", "rate=0.10", "anything=0.10"]
    assert add_texts({}, texts, Signature.of(handler)) == {
        "amount": "12345678901234567890.10",
        "rate": 0.1,
        "anything": 0.1,
    }
