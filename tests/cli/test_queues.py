"""`holdfast queues` and `holdfast breakers`, run as people and scripts run them."""

from __future__ import annotations

import asyncio
import getpass
import json
import re
import shlex
import socket
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.stores.protocol import Claim, FullStore
from tests.cli.test_cli import (
    COMMAND,
    Run,
    enqueue,
    environment,
    folder,
    lines_of,
    run,
    sqlite_url,
)
from tests.promises.stage import both_stores
from tests.support.stores import full_store
from tests.support.terminal import Terminal

pytestmark = pytest.mark.heavy

__all__ = ["folder", "run", "sqlite_url"]  # the fixtures of the command's tests

ME = f"{getpass.getuser()}@{socket.gethostname()}"
NAMES = ("greet", "refuse", "crash")


def on_store(url: str, work: Callable[[FullStore], Awaitable[Any]]) -> Any:
    async def do() -> Any:
        async with Holdfast(url) as hf:
            return await work(await full_store(hf))

    return asyncio.run(do())


def claim(url: str, limit: int = 1) -> None:
    """Lease jobs for a worker that does nothing with them."""
    wanted = Claim(worker="idle", limit=limit, lease_seconds=60.0, names=NAMES)
    assert len(on_store(url, lambda store: store.claim(wanted))) == limit


def hold_jobs(url: str, *, because: str | None = None) -> str:
    """Enqueue a job that depends on the gateway, open its breaker, and hold it."""

    async def do() -> str:
        async with Holdfast(url) as hf:

            @hf.job(name="call", breaker="gateway")
            async def call() -> None: ...

            job = await call.enqueue()
            await hf.breakers.open("gateway", by="ann@host", because=because)
            await (await full_store(hf)).park(10)
            return str(job.id)

    return asyncio.run(do())


def states(url: str) -> dict[str, int]:
    async def count() -> Counter[str]:
        async with Holdfast(url) as hf:
            found: Counter[str] = Counter()
            for each in await hf.jobs.counts():
                found[each.state] += each.jobs
            return found

    return dict(asyncio.run(count()))


def in_terminal(folder: Path, url: str, *words: str) -> str:
    terminal = Terminal([*COMMAND, *words, "--database", url], folder, environment())
    plain = re.sub(r"\x1b\[[0-9;]*m", "", terminal.read_all())
    assert terminal.end() == 0
    return plain


@both_stores
def test_a_queue_is_paused_seen_and_resumed(store_url: str, run: Run) -> None:
    enqueue(store_url, "greet", "Ada", queue="images", count=3)
    claim(store_url)
    paused = run("queues", "pause", "images", "--because", "the disk is full", url=store_url)
    assert (paused.returncode, paused.stderr) == (0, "")
    assert paused.stdout == (
        "queue images is paused: 2 waiting, 1 still running."
        " Resume with: holdfast queues resume images\n"
    )
    (seen,) = lines_of(run("queues", "--json", url=store_url))
    assert (seen["name"], seen["ready"], seen["running"]) == ("images", 2, 1)
    assert (seen["paused_by"], seen["paused_because"]) == (ME, "the disk is full")
    header, row = run("queues", "list", url=store_url).stdout.splitlines()
    assert header.split() == [
        "QUEUE",
        "READY",
        "SCHEDULED",
        "PARKED",
        "RUNNING",
        "OLDEST",
        "PAUSED",
    ]
    assert row.startswith("images  2 ")
    assert re.search(rf"by {re.escape(ME)}, (now|\d+ s ago): the disk is full", row)

    again = run("queues", "pause", "images", "--by", "bob", url=store_url)
    assert (again.returncode, again.stdout) == (1, "")
    assert again.stderr.startswith(
        f"holdfast: queue images has already been paused, by {ME} since 20"
    )
    resumed = run("queues", "resume", "images", url=store_url)
    assert resumed.stdout == "queue images resumed: 2 waiting, 1 running\n"
    assert run("queues", "resume", "images", url=store_url).returncode == 1


@pytest.mark.parametrize("name", ["-mail", "it's mail", "$(mail)"])
def test_the_commands_that_are_told_can_be_pasted_whatever_the_name(
    name: str, sqlite_url: str, run: Run
) -> None:
    enqueue(sqlite_url, "greet", "Ada", queue="images")
    for change in (("queues", "pause"), ("breakers", "open")):
        told = run(*change, "--", name, url=sqlite_url).stdout
        holdfast, *words = shlex.split(told.rpartition(": ")[2])
        assert (holdfast, words[-1]) == ("holdfast", name)
        undone = run(*words, url=sqlite_url)
        assert (undone.returncode, undone.stderr) == (0, "")


@pytest.mark.parametrize("change", ["queues pause", "queues drain", "breakers open"])
def test_the_commands_that_are_told_name_the_app_or_the_database_as_it_was_named(
    change: str, sqlite_url: str, run: Run
) -> None:
    enqueue(sqlite_url, "greet", "Ada", queue="images")
    app = run(*change.split(), "images", "--app", "app:hf", url=sqlite_url)
    undoing = app.stdout.strip().rpartition(": ")[2]
    assert undoing.endswith(" --app app:hf images")
    assert run(*shlex.split(undoing)[1:], url=sqlite_url).returncode == 0
    database = run(*change.split(), "images", "--database", sqlite_url)
    undoing = database.stdout.strip().rpartition(": ")[2]
    assert undoing.endswith(f" --database {sqlite_url} images")
    assert run(*shlex.split(undoing)[1:]).returncode == 0


def test_a_cap_is_set_and_lifted(sqlite_url: str, run: Run) -> None:
    enqueue(sqlite_url, "greet", "Ada", queue="images")
    claim(sqlite_url)
    capped = run("queues", "cap", "images", "1", url=sqlite_url)
    assert capped.stdout == "queue images is capped at 1: 1 running\n"
    assert " 1/1 " in run("queues", url=sqlite_url).stdout
    lifted = run("queues", "cap", "images", "none", url=sqlite_url)
    assert lifted.stdout == "queue images has no cap: 1 running\n"
    (seen,) = lines_of(run("queues", "--json", url=sqlite_url))
    assert seen["running_max"] is None


@both_stores
def test_a_purge_is_told_before_it_is_done_and_leaves_alone_what_runs(
    store_url: str, run: Run
) -> None:
    enqueue(store_url, "greet", "Ada", queue="images", count=4)
    enqueue(store_url, "greet", "Eve", queue="mail")
    wanted = Claim(worker="idle", limit=1, lease_seconds=60.0, names=NAMES, queues=["images"])
    on_store(store_url, lambda store: store.claim(wanted))
    dry = run("queues", "purge", "images", "--dry-run", url=store_url)
    assert (dry.returncode, len(dry.stdout.splitlines())) == (0, 4)
    assert "would cancel 3 jobs in queue images on " in dry.stderr
    (told,) = lines_of(run("queues", "purge", "images", "--dry-run", "--json", url=store_url))
    assert (told["would"], told["jobs"], len(told["sample"])) == ("cancel", 3, 3)
    unasked = run("queues", "purge", "images", url=store_url)
    assert unasked.returncode == 2
    assert "Not a terminal; pass --yes to confirm" in unasked.stderr
    assert states(store_url) == {"queued": 4, "running": 1}

    done = run("queues", "purge", "images", "--yes", "--pace", "1000/s", url=store_url)
    assert (done.returncode, done.stderr) == (0, "holdfast: canceled 3 jobs in queue images\n")
    assert states(store_url) == {"canceled": 3, "queued": 1, "running": 1}
    rest = run("queues", "purge", "images", "--running", "--yes", url=store_url)
    assert rest.stderr == "holdfast: canceled 1 job in queue images\n"
    nothing = run("queues", "purge", "images", "--yes", url=store_url)
    assert nothing.stderr == "holdfast: no jobs in queue images to cancel\n"


@pytest.mark.parametrize(("answer", "code", "left"), [("y", 0, 0), ("n", 1, 2)])
def test_in_a_terminal_a_purge_asks(
    sqlite_url: str, folder: Path, run: Run, answer: str, code: int, left: int
) -> None:
    enqueue(sqlite_url, "greet", "Ada", queue="images", count=2)
    words = [*COMMAND, "queues", "purge", "images", "--database", sqlite_url]
    terminal = Terminal(words, folder, environment())
    question = terminal.read_until("[y/N]")
    assert "cancel 2 jobs in queue images on sqlite:///" in question
    terminal.write(f"{answer}\n")
    terminal.read_all()
    assert terminal.end() == code
    assert states(sqlite_url).get("queued", 0) == left


def test_a_drain_that_is_interrupted_says_that_the_queue_stays_paused(
    sqlite_url: str, folder: Path, run: Run
) -> None:
    enqueue(sqlite_url, "greet", "Ada", queue="images", count=2)
    claim(sqlite_url)
    words = [*COMMAND, "queues", "drain", "images", "--database", sqlite_url]
    terminal = Terminal(words, folder, environment())
    assert "0/1" in terminal.read_until("0/1")
    terminal.interrupt()
    told = " ".join(terminal.read_all().split())
    assert terminal.end() == 130
    assert "queue images stays paused; 1 job may still be running. Resume with:" in told
    (seen,) = lines_of(run("queues", "--json", url=sqlite_url))
    assert seen["paused_by"] == ME


def test_a_drain_of_a_quiet_queue_ends(sqlite_url: str, run: Run) -> None:
    enqueue(sqlite_url, "greet", "Ada", queue="images")
    drained = run("queues", "drain", "images", url=sqlite_url)
    assert (drained.returncode, drained.stderr) == (0, "")
    assert drained.stdout == (
        "queue images is drained: 1 waiting, none running."
        " Resume with: holdfast queues resume images\n"
    )


@pytest.mark.parametrize("change", [("pause",), ("cap", "3"), ("drain",)], ids=lambda each: each[0])
def test_a_misspelled_queue_is_told_of_when_it_is_changed(
    change: tuple[str, ...], sqlite_url: str, run: Run
) -> None:
    enqueue(sqlite_url, "greet", "Ada", queue="mail")
    word, *more = change

    def changed(name: str, *options: str) -> str:
        ran = run("queues", word, name, *more, *options, url=sqlite_url)
        assert (ran.returncode, ran.stdout[:6]) == (0, "queue "), ran.stderr
        return ran.stderr

    told = "holdfast: no job has used a queue named 'mial'; did you mean 'mail'?\n"
    assert changed("mial") == told
    assert changed("elsewhere") == "holdfast: no job has used a queue named 'elsewhere'\n"
    assert "did you mean 'images'" in changed("image", "--app", "app:hf")
    assert changed("images", "--app", "app:hf") == ""  # declared, though no job has used it
    assert changed("mail") == ""


def test_a_queue_whose_jobs_have_all_ended_is_known(sqlite_url: str, run: Run) -> None:
    enqueue(sqlite_url, "greet", "Ada", queue="mail")
    run("worker", "app:hf", "--until-empty", url=sqlite_url)
    assert run("queues", "pause", "mail", url=sqlite_url).stderr == ""


@pytest.mark.parametrize("pattern", ["mail*", "*", "mail-?", "mail-[12]"])
def test_queues_are_not_changed_by_pattern(pattern: str, sqlite_url: str, run: Run) -> None:
    enqueue(sqlite_url, "greet", "Ada", queue="mail")
    for change in (("pause", pattern), ("cap", pattern, "3"), ("drain", pattern)):
        ran = run("queues", *change, url=sqlite_url)
        assert (ran.returncode, ran.stdout) == (1, "")
        assert ran.stderr == (
            f"holdfast: {pattern!r}: queues can't be selected by pattern; name one queue\n"
        )
    (seen,) = lines_of(run("queues", "--json", url=sqlite_url))
    assert (seen["name"], seen["paused_at"], seen["running_max"]) == ("mail", None, None)


def test_a_queue_that_is_named_like_a_pattern_can_be_paused(sqlite_url: str, run: Run) -> None:
    enqueue(sqlite_url, "greet", "Ada", queue="mail?")
    paused = run("queues", "pause", "mail?", url=sqlite_url)
    assert (paused.returncode, paused.stderr) == (0, "")


def test_to_open_a_breaker_that_nobody_knows_is_told(sqlite_url: str, run: Run) -> None:
    enqueue(sqlite_url, "greet", "Ada")
    opened = run("breakers", "open", "gateway", url=sqlite_url)
    assert opened.stderr == "holdfast: breaker gateway did not exist before\n"
    assert run("breakers", "open", "gateway", url=sqlite_url).stderr == ""
    misspelled = run("breakers", "open", "gatway", url=sqlite_url)
    assert misspelled.stderr == (
        "holdfast: breaker gatway did not exist before; did you mean 'gateway'?\n"
    )


@both_stores
def test_a_breaker_is_opened_seen_closed_and_reset(store_url: str, run: Run) -> None:
    enqueue(store_url, "greet", "Ada")
    none = run("breakers", url=store_url)
    assert (none.returncode, none.stdout, none.stderr[:11]) == (0, "", "no breakers")
    opened = run("breakers", "open", "gateway", "--because", "deploying", url=store_url)
    assert opened.stdout.endswith("Close it with: holdfast breakers close gateway\n")
    (seen,) = lines_of(run("breakers", "--json", url=store_url))
    assert (seen["key"], seen["opened_by"], seen["next_probe_at"]) == ("gateway", ME, None)
    header, row = run("breakers", url=store_url).stdout.splitlines()
    assert header.split()[:5] == ["KEY", "STATE", "SINCE", "PARKED", "FAILURES"]
    assert row.startswith("gateway  open ")
    assert row.rstrip().endswith(f"by {ME}: deploying")
    closed = run("breakers", "close", "gateway", url=store_url)
    assert closed.stdout.startswith("breaker gateway is closed;")
    again = run("breakers", "close", "gateway", url=store_url)
    assert (again.returncode, again.stderr) == (
        1,
        "holdfast: breaker gateway is not open; nothing was changed\n",
    )
    assert run("breakers", "reset", "gateway", url=store_url).returncode == 0
    assert lines_of(run("breakers", "--json", url=store_url)) == []


@both_stores
def test_a_parked_job_is_queued_and_shown_with_its_breaker(store_url: str, run: Run) -> None:
    job_id = hold_jobs(store_url, because="deploying")
    (free,) = enqueue(store_url, "greet", "Ada")
    rows = run("jobs", "list", url=store_url).stdout.splitlines()
    (parked,) = [row for row in rows if row.startswith(job_id)]
    assert re.search(r" queued .* parked: gateway$", parked.rstrip())
    (other,) = [row for row in rows if row.startswith(free)]
    assert "parked" not in other
    shown = run("jobs", "show", job_id, url=store_url).stdout
    told = r"parked by +breaker gateway, opened 20\S+Z by ann@host: deploying\n"
    assert re.search(told, shown)
    assert re.search(r"breaker +gateway\n", shown)
    assert json.loads(run("jobs", "show", job_id, "--json", url=store_url).stdout)["parked_by"] == (
        "gateway"
    )
    run("breakers", "close", "gateway", url=store_url)
    assert "parked by" not in run("jobs", "show", job_id, url=store_url).stdout


def test_tables_fit_a_terminal_of_80_columns(sqlite_url: str, folder: Path, run: Run) -> None:
    hold_jobs(sqlite_url, because="deploying, " * 10)
    enqueue(sqlite_url, "greet", "Ada", queue="a-queue-with-quite-a-long-name-of-its-own")
    words = ("--because", "the disk is full, " * 8, "--by", "ann@a-machine-of-ours.example.com")
    run("queues", "pause", "a-queue-with-quite-a-long-name-of-its-own", *words, url=sqlite_url)
    for command, piece in (
        ("queues", "a-queue"),
        ("breakers", "gateway"),
        ("jobs list", "parked: gat"),
    ):
        table = in_terminal(folder, sqlite_url, *command.split())
        assert piece in table
        assert max(len(line.rstrip("\r")) for line in table.split("\n")) <= 80, table


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("queues pasue images", "No such command 'pasue'"),
        ("queues cap images many", "'many' is not a valid cap; use a number from 0 to 1000000"),
        ("queues cap images 1000001", "'1000001' is not a valid cap"),
        ("queues purge images --json", "--json requires --dry-run"),
        ("queues pause", "Missing argument 'NAME'"),
        ("breakers open", "Missing argument 'KEY'"),
    ],
)
def test_wrong_words_are_told_in_one_line(run: Run, folder: Path, words: str, told: str) -> None:
    ran = run(*words.split(), url="sqlite:///app.py")
    assert ran.returncode == 2
    assert len(ran.stderr.splitlines()) == 1
    assert told in ran.stderr
