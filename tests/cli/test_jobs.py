"""`holdfast jobs`: what belongs to a job, and who canceled it."""

from __future__ import annotations

import getpass
import json
import re
import socket
from pathlib import Path

import pytest

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
from tests.support.terminal import Terminal

pytestmark = pytest.mark.heavy

__all__ = ["folder", "run", "sqlite_url"]  # the fixtures of the command's tests


@pytest.mark.parametrize("choice", [[], ["--all", "--yes"]], ids=["one", "all"])
@both_stores
def test_a_cancel_records_who_did_it_and_why(store_url: str, run: Run, choice: list[str]) -> None:
    (job_id,) = enqueue(store_url, "greet", "Ada")
    words = [*choice] if choice else [job_id]
    given = ("--by", "ann", "--because", "wrong file")
    ran = run("jobs", "cancel", *words, *given, url=store_url)
    assert ran.returncode == 0, ran.stderr
    shown = json.loads(run("jobs", "show", job_id, "--json", url=store_url).stdout)
    assert (shown["state"], shown["error_code"]) == ("canceled", "CANCELED")
    assert shown["error_text"] == "canceled by ann: wrong file"
    assert "canceled by ann: wrong file" in run("jobs", "why", job_id, url=store_url).stdout


@both_stores
def test_a_purge_records_who_did_it_and_why(store_url: str, run: Run) -> None:
    (job_id,) = enqueue(store_url, "greet", "Ada", queue="images")
    given = ("--by", "ann", "--because", "wrong size", "--yes")
    assert run("queues", "purge", "images", *given, url=store_url).returncode == 0
    shown = json.loads(run("jobs", "show", job_id, "--json", url=store_url).stdout)
    assert shown["error_text"] == "canceled by ann: wrong size"


def test_the_environment_names_the_app_unless_a_database_is_given(
    sqlite_url: str, run: Run
) -> None:
    (job_id,) = enqueue(sqlite_url, "greet", "Ada")
    named = {"HOLDFAST_APP": "app:hf"}
    assert run("worker", "--until-empty", url=sqlite_url, environment=named).returncode == 0
    (found,) = lines_of(run("jobs", "list", "--json", url=sqlite_url, environment=named))
    assert (found["id"], found["state"]) == (job_id, "succeeded")
    checked = run("doctor", "--json", url=sqlite_url, environment=named).stdout
    assert "timeouts" in {each["code"] for each in json.loads(checked)["findings"]}
    wrong = {"HOLDFAST_APP": "missing:hf"}
    assert run("jobs", "list", environment=wrong).returncode == 1
    given = ("--database", sqlite_url)
    assert len(lines_of(run("jobs", "list", "--json", *given, environment=wrong))) == 1


def test_a_cancel_without_a_name_is_recorded_with_that_of_the_caller(
    sqlite_url: str, run: Run
) -> None:
    (job_id,) = enqueue(sqlite_url, "greet", "Ada")
    run("jobs", "cancel", job_id, url=sqlite_url)
    shown = json.loads(run("jobs", "show", job_id, "--json", url=sqlite_url).stdout)
    assert shown["error_text"] == f"canceled by {getpass.getuser()}@{socket.gethostname()}"


@both_stores
def test_a_parent_and_its_children_lead_to_each_other(
    store_url: str, run: Run, folder: Path
) -> None:
    (parent,) = enqueue(store_url, "spread", "2")
    (other,) = enqueue(store_url, "greet", "Ada")
    assert run("worker", "app:hf", "--until-empty", url=store_url).returncode == 0
    found = lines_of(run("jobs", "list", "--parent", parent, "--json", url=store_url))
    assert [job["name"] for job in found] == ["greet", "greet"]
    assert {job["parent_id"] for job in found} == {parent}
    assert other not in {job["id"] for job in found}

    whole = json.loads(run("jobs", "show", parent, "--json", url=store_url).stdout)
    assert whole["children"] == [job["id"] for job in found]
    shown = run("jobs", "show", parent, "--app", "app:hf", url=store_url).stdout
    (told,) = re.findall(r"^children +2; to list them: holdfast (.*)$", shown, re.MULTILINE)
    again = lines_of(run(*told.split(), "--json", url=store_url))
    assert [job["id"] for job in again] == [job["id"] for job in found]
    child = run("jobs", "show", found[0]["id"], url=store_url).stdout
    assert re.search(rf"^parent +{parent}$", child, re.MULTILINE)
    assert "children" not in child


@both_stores
def test_show_lists_every_attempt_with_its_worker_fence_and_times(store_url: str, run: Run) -> None:
    (job_id,) = enqueue(store_url, "stumble")
    assert run("worker", "app:hf", "--until-empty", url=store_url).returncode == 0
    whole = json.loads(run("jobs", "show", job_id, "--json", url=store_url).stdout)
    first, second = whole["history"]
    assert [each["outcome"] for each in (first, second)] == ["failed", "succeeded"]
    assert first["fence"] < second["fence"]
    assert first["worker"] == second["worker"]
    shown = run("jobs", "show", job_id, url=store_url).stdout.partition("\nattempts\n")[2]
    time = r"20[\d-]+T[\d:.]+Z"
    assert re.fullmatch(
        rf"1  failed     {time}, took \d.*\n"
        rf"   fence {first['fence']}, worker {first['worker']}\n"
        r"   RuntimeError: once\n"
        rf"2  succeeded  {time}, took \d.*\n"
        rf"   fence {second['fence']}, worker {second['worker']}\n",
        shown,
    )


@both_stores
def test_lists_mark_what_was_requeued_and_as_what(store_url: str, run: Run, folder: Path) -> None:
    old, untouched = enqueue(store_url, "greet", "Ada", count=2)
    for job_id in (old, untouched):
        run("jobs", "cancel", job_id, url=store_url)
    run("jobs", "retry", old, url=store_url)
    listed = {job["id"]: job for job in lines_of(run("jobs", "list", "--json", url=store_url))}
    (new,) = set(listed) - {old, untouched}
    assert listed[old]["requeued_as"] == new
    assert listed[untouched]["requeued_as"] is listed[new]["requeued_as"] is None
    assert listed[new]["requeued_from"] == old
    table = run("jobs", "list", url=store_url).stdout.splitlines()
    assert table[0].split()[-2:] == ["REQUEUED", "AS"]
    (row,) = [line for line in table if line.startswith(old)]
    assert row.endswith(f", requeued  {new}")
    for columns, mark in ((80, "  requeued"), (120, ", requeued")):
        variables = environment(HOLDFAST_DATABASE_URL=store_url)
        terminal = Terminal([*COMMAND, "jobs", "list"], folder, variables, columns=columns)
        lines = re.sub(r"\x1b\[[0-9;]*m", "", terminal.read_all()).splitlines()
        assert terminal.end() == 0
        assert [line for line in lines if mark in line] == [
            line for line in lines if line.startswith(old)
        ]
        assert all(len(line) <= columns for line in lines)
