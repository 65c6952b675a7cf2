"""`holdfast dead` as a workbench: groups, filters, mended arguments, and changes of many jobs."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast, Permanent, Retry
from holdfast.runtime.seam import Seam
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
from tests.support.processes import PROGRAM_SECONDS_MAX
from tests.support.terminal import Terminal

pytestmark = pytest.mark.heavy

__all__ = ["folder", "run", "sqlite_url"]  # the fixtures of the command's tests

DEAD = {"max_attempts": 1}


def work(url: str) -> None:
    """End what waits, as the worker of the tests' app would."""

    async def run_due() -> None:
        async with Holdfast(url) as hf:

            @hf.job(name="refuse")
            async def refuse(why: str) -> None:
                raise Permanent(why, code="REFUSED")

            @hf.job(name="crash", retry=Retry.none())
            async def crash() -> None:
                raise RuntimeError("boom")

            await hf.run_due()

    asyncio.run(run_due())


def listed(run: Run, url: str, *words: str) -> list[dict[str, Any]]:
    return lines_of(run("jobs", "list", "--json", "--limit", "500", *words, url=url))


def test_groups_tell_what_went_wrong_how_often_and_since_when(store_url: str, run: Run) -> None:
    for user in ("17", "4"):
        enqueue(store_url, "refuse", f"no user {user}", queue="images")
    (crashed,) = enqueue(store_url, "crash", **DEAD)
    work(store_url)
    first, second = lines_of(run("dead", "groups", "--json", url=store_url))
    assert (first["jobs"], first["error_code"], first["shape"]) == (2, "REFUSED", "no user *")
    assert (first["queues"], first["state"]) == (["images"], "new")
    assert first["first_seen"] <= first["last_seen"]
    assert (second["jobs"], second["example_id"]) == (1, crashed)

    table = run("dead", "groups", url=store_url)
    assert (table.returncode, table.stderr) == (0, "")
    for piece in ("REFUSED", "no user *", first["fingerprint"], crashed, "images"):
        assert piece in table.stdout
    of_group = run("dead", "list", "--fingerprint", first["fingerprint"], "--json", url=store_url)
    assert {job["name"] for job in lines_of(of_group)} == {"refuse"}
    part = run("dead", "groups", "--look", "1", "--limit", "1", url=store_url)
    assert "examined only the newest 1 jobs" in part.stderr


def test_groups_are_acknowledged_resolved_and_reopened(sqlite_url: str, run: Run) -> None:
    enqueue(sqlite_url, "refuse", "no user 17", queue="images")
    enqueue(sqlite_url, "crash", **DEAD)
    work(sqlite_url)
    groups = lines_of(run("dead", "groups", "--json", url=sqlite_url))
    refused, crashed = sorted(groups, key=lambda group: str(group["name"]), reverse=True)
    fingerprint = refused["fingerprint"]
    told = run("dead", "acknowledge", fingerprint, "--note", "on it", "--by", "ann", url=sqlite_url)
    assert told.stdout == f"error group {fingerprint} is acknowledged: 1 jobs\n"
    run("dead", "resolve", fingerprint, "--version", "2.4.1", url=sqlite_url)
    for words in (("--group-state", "resolved"), ("--text", "NO USER"), ("--queue", "images")):
        for look in ((), ("--look", "5")):
            (group,) = lines_of(run("dead", "groups", "--json", *words, *look, url=sqlite_url))
            assert (group["state"], group["resolved_in"]) == ("resolved", "2.4.1"), words
    run("dead", "reopen", fingerprint, crashed["fingerprint"], url=sqlite_url)
    (again,) = lines_of(run("dead", "groups", "--json", "--text", "user", url=sqlite_url))
    assert (again["state"], again["note"]) == ("new", "on it")
    audit = lines_of(
        run("audit", "list", "--json", "--action", "error_group.resolve", url=sqlite_url)
    )
    assert [entry["target"] for entry in audit] == [fingerprint]
    refusal = run("dead", "resolve", "0123456789ab", url=sqlite_url)
    assert (refusal.returncode, "does not exist" in refusal.stderr) == (1, True)


def test_lists_and_changes_take_the_same_filters(sqlite_url: str, run: Run) -> None:
    (bad,) = enqueue(sqlite_url, "refuse", "no", queue="images", tenant="acme", tags=["x"])
    (dead,) = enqueue(sqlite_url, "crash", **DEAD)
    work(sqlite_url)
    soon = (Seam().now() + timedelta(hours=1)).isoformat()
    for words, expected in (
        (("--code", "REFUSED"), [bad]),
        (("--code", "RuntimeError", "--since", "1h"), [dead]),
        (("--until", soon, "--tenant", "acme"), [bad]),
        (("--since", soon), []),
        (("--tag", "x", "--queue", "images", "--name", "refuse"), [bad]),
        (("--state", "canceled"), []),
    ):
        found = lines_of(run("dead", "list", "--json", *words, url=sqlite_url))
        assert [job["id"] for job in found] == expected, words
        dry = run("dead", "requeue", "--all", "--dry-run", "--json", *words, url=sqlite_url)
        (told,) = lines_of(dry)
        assert (told["jobs"], told["sample"]) == (len(expected), expected), words


def test_show_tells_why_a_job_ended_and_what_it_was_requeued_as(sqlite_url: str, run: Run) -> None:
    (bad,) = enqueue(sqlite_url, "refuse", "no user 17")
    work(sqlite_url)
    before = run("dead", "show", bad, url=sqlite_url).stdout
    assert "REFUSED is permanent, so it was not retried (attempt 1 of 5)" in before
    assert '"why": "no user 17"' in before
    assert "requeued as" not in before
    (group,) = lines_of(run("dead", "groups", "--json", url=sqlite_url))
    assert group["fingerprint"] in before
    (new,) = lines_of(run("dead", "requeue", bad, "--json", url=sqlite_url))
    assert re.search(rf"requeued as +{new['id']}", run("dead", "show", bad, url=sqlite_url).stdout)
    whole = json.loads(run("dead", "show", bad, "--json", url=sqlite_url).stdout)
    assert (whole["requeued_as"], whole["fingerprint"]) == (new["id"], group["fingerprint"])


def test_a_job_is_requeued_with_other_arguments_that_fit_its_handler(
    sqlite_url: str, run: Run
) -> None:
    (bad,) = enqueue(sqlite_url, "refuse", "no")
    work(sqlite_url)
    wrong = run("dead", "requeue", bad, "--set", "wy=1", "--app", "app:hf", url=sqlite_url)
    assert (wrong.returncode, wrong.stdout) == (1, "")
    assert "refuse: got an unexpected argument wy" in wrong.stderr
    words = ("--set-json", "why=[1]", "--app", "app:hf")
    assert "argument why" in run("dead", "requeue", bad, *words, url=sqlite_url).stderr
    assert len(listed(run, sqlite_url)) == 1

    mended = ("--set", "why=640", "--app", "app:hf", "--json")
    (new,) = lines_of(run("dead", "requeue", bad, *mended, url=sqlite_url))
    assert (new["requeued_from"], new["arguments"]) == (bad, {"why": "640"})
    again = run("dead", "requeue", bad, url=sqlite_url)
    assert again.returncode == 1
    assert f"was already requeued as {new['id']}" in again.stderr
    assert "--again" in again.stderr
    unchecked = run("dead", "requeue", bad, "--again", "--set", "n=2", "--json", url=sqlite_url)
    (other,) = lines_of(unchecked)
    assert other["arguments"] == {"why": "no", "n": 2}
    assert "no handler for refuse" in unchecked.stderr


@pytest.mark.parametrize(
    ("script", "code", "told"),
    [
        ("sed -i s/no/yes/", 0, "requeued"),
        ("true", 1, "not saved"),
        ("sed -i s/no.*/no/", 1, "invalid JSON"),
        ("sed -i s/.why.:/5:/", 1, "invalid JSON"),
        ("false", 1, "Editing failed"),
    ],
)
def test_arguments_are_edited_in_the_editor(
    sqlite_url: str,
    folder: Path,
    run: Run,
    script: str,
    code: int,
    told: str,
) -> None:
    (bad,) = enqueue(sqlite_url, "refuse", "no")
    work(sqlite_url)
    ran = subprocess.run(
        [*COMMAND, "dead", "requeue", bad, "--edit", "--app", "app:hf"],
        cwd=folder,
        env=environment(HOLDFAST_DATABASE_URL=sqlite_url, EDITOR=script, VISUAL=script),
        capture_output=True,
        text=True,
        timeout=PROGRAM_SECONDS_MAX,
    )
    assert ran.returncode == code, ran.stderr
    assert told in ran.stdout + ran.stderr
    waiting = listed(run, sqlite_url, "--state", "queued")
    assert [job["arguments"] for job in waiting] == ([{"why": "yes"}] if code == 0 else [])


def test_a_dry_run_tells_how_many_and_changes_nothing(sqlite_url: str, run: Run) -> None:
    ids = enqueue(sqlite_url, "crash", count=8, **DEAD)
    work(sqlite_url)
    run("dead", "requeue", ids[0], url=sqlite_url)
    ran = run("dead", "requeue", "--all", "--dry-run", url=sqlite_url)
    assert ran.returncode == 0
    assert "would requeue 7 jobs on " in ran.stderr
    assert "1 already requeued (use --again to include them)" in ran.stderr
    assert "nothing was changed" in ran.stderr
    shown = [line.split()[0] for line in ran.stdout.splitlines()]
    assert shown == ["ID", *ids[:2:-1]]
    assert len(listed(run, sqlite_url, "--state", "queued")) == 1


def test_what_was_requeued_is_left_out_when_the_command_is_run_again(
    store_url: str, run: Run
) -> None:
    ids = enqueue(store_url, "crash", count=5, **DEAD)
    work(store_url)
    run("dead", "requeue", *ids[:2], url=store_url)
    ran = run("dead", "requeue", "--all", "--yes", "--pace", "100/s", url=store_url)
    assert ran.stderr == (
        "holdfast: requeued 3 jobs; 2 already requeued (use --again to include them)\n"
    )
    nothing = run("dead", "requeue", "--all", "--yes", url=store_url)
    assert (nothing.returncode, nothing.stderr[:45]) == (
        0,
        "holdfast: no jobs to requeue; 5 already requeued"[:45],
    )
    assert len(listed(run, store_url, "--state", "queued")) == 5
    again = run("jobs", "retry", "--all", "--state", "dead", "--again", "--yes", url=store_url)
    assert again.stderr == "holdfast: retried 5 jobs\n"


def test_an_interrupted_change_says_how_far_it_came_and_goes_on_from_there(
    sqlite_url: str, folder: Path, run: Run
) -> None:
    enqueue(sqlite_url, "crash", count=30, **DEAD)
    work(sqlite_url)
    words = ["dead", "requeue", "--all", "--yes", "--pace", "10/s", "--json"]
    terminal = Terminal([*COMMAND, *words, "--database", sqlite_url], folder, environment())
    terminal.read_until('"id"')
    terminal.interrupt()
    told = terminal.read_all()
    assert terminal.end() == 130
    done = re.search(r"requeued at least (\d+) of 30 jobs; run the same command again", told)
    assert done is not None, told
    waiting = len(listed(run, sqlite_url, "--state", "queued"))
    assert int(done[1]) <= waiting < 30
    rest = run("dead", "requeue", "--all", "--yes", url=sqlite_url)
    assert f"requeued {30 - waiting} jobs" in rest.stderr
    origins = [job["requeued_from"] for job in listed(run, sqlite_url, "--state", "queued")]
    assert len(origins) == len(set(origins)) == 30


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("dead list --since yesterday", "'yesterday' is not a time; use 2026-11-16T03:00Z"),
        ("dead requeue --all --pace fast", "'fast' is not a rate; use 50/s"),
        ("dead requeue --all --pace 0/s", "'0/s' is not a rate"),
        ("dead requeue --all --pace 3/h", "'3/h' is too slow; the lowest rate is 0.001/s"),
        ("dead requeue --all --set a=1", "work on one job"),
        ("dead requeue 01972d5c-8a30-7c4e-b1f0-3d2a5b6c7d8e --dry-run", "require --all"),
        ("dead requeue --code X", "add --all"),
        ("dead groups --look 0", "--look"),
    ],
)
def test_wrong_words_are_told_in_one_line(run: Run, folder: Path, words: str, told: str) -> None:
    ran = run(*words.split(), url="sqlite:///app.py")
    assert ran.returncode == 2
    assert len(ran.stderr.splitlines()) == 1
    assert told in ran.stderr


def test_groups_fit_a_terminal_of_80_columns(sqlite_url: str, folder: Path) -> None:
    enqueue(sqlite_url, "refuse", "no " * 100, queue="a-queue-with-quite-a-long-name")
    work(sqlite_url)
    words = [*COMMAND, "dead", "groups", "--database", sqlite_url]
    terminal = Terminal(words, folder, environment())
    plain = re.sub(r"\x1b\[[0-9;]*m", "", terminal.read_all())
    assert terminal.end() == 0
    assert "REFUSED" in plain
    assert max(len(line.rstrip("\r")) for line in plain.split("\n")) <= 80
