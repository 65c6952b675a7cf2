"""`holdfast worker`: its options and their twins in the environment, and what it logs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast
from tests.support.command import run_command
from tests.support.processes import PROGRAM_SECONDS_MAX

pytestmark = pytest.mark.heavy

SECRET = "s3cr3t"
APP = """
import logging, os
from holdfast import Holdfast, LogFilter, Retry

hf = Holdfast(os.environ["HOLDFAST_DATABASE_URL"], sqlite_synchronous="NORMAL")
shop = logging.getLogger("shop")
if "OWN_FORMAT" in os.environ:
    handler = logging.StreamHandler()
    handler.addFilter(LogFilter())
    logging.basicConfig(format=os.environ["OWN_FORMAT"], handlers=[handler], level="INFO")

@hf.job
async def on_loop() -> None:
    shop.info("working")

@hf.job(queue="images")
def in_thread() -> None:
    shop.info("working", extra={"attempt": 77})

@hf.job(executor="process")
def in_child() -> None:
    shop.info("working")

@hf.job(retry=Retry.none)
def break_down(password: str) -> None:
    raise RuntimeError(f"can't log in with password={password}")
"""


@pytest.fixture
def url(tmp_path: Path) -> str:
    (tmp_path / "app.py").write_text(APP)
    return f"sqlite:///{tmp_path / 'jobs.db'}"


def work(url: str, folder: Path, *options: str, **environment: str) -> str:
    """Run a worker until nothing is left to do; return what it logged."""
    words = ["worker", "app:hf", "--until-empty", *options]
    done = run_command(*words, folder=folder, url=url, environment=environment)
    assert done.returncode == 0, done.stderr
    return done.stderr


def work_as_our_child(url: str, folder: Path, *options: str, **environment: str) -> str:
    """The same in a process whose parent is this one, not a helper."""
    command = [sys.executable, "-m", "holdfast.cli.main", "worker", "app:hf", "--until-empty"]
    return subprocess.run(
        [*command, *options],
        cwd=folder,
        env={**os.environ, **environment, "HOLDFAST_DATABASE_URL": url},
        stderr=subprocess.PIPE,
        text=True,
        timeout=PROGRAM_SECONDS_MAX,
        check=True,
    ).stderr


def lines(log: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.splitlines()]


async def enqueue(url: str, *names: str, **arguments: str) -> list[str]:
    async def work(password: str = "") -> None: ...

    queues = {"in_thread": "images"}
    async with Holdfast(url) as hf:
        jobs = [hf.job(name=name, queue=queues.get(name, "default"))(work) for name in names]
        return [
            str((await job.options(correlation_id="request-7").enqueue(**arguments)).id)
            for job in jobs
        ]


async def test_any_line_that_a_handler_logs_names_its_job(url: str, tmp_path: Path) -> None:
    names = ["on_loop", "in_thread", "in_child"]
    ids = await enqueue(url, *names)
    logged = [line for line in lines(work(url, tmp_path)) if line["message"] == "working"]
    expected = [
        {
            "level": "info",
            "event": "log",
            "message": "working",
            "logger": "shop",
            "job_id": job_id,
            "name": name,
            "tenant": "default",
            "attempt": 77 if name == "in_thread" else 1,
            "correlation_id": "request-7",
        }
        for name, job_id in zip(names, ids, strict=True)
    ]
    for line in logged:
        del line["time"]
    assert sorted(logged, key=lambda line: str(line["job_id"])) == expected


async def test_lines_for_people_name_the_job_too(url: str, tmp_path: Path) -> None:
    (job_id,) = await enqueue(url, "on_loop")
    log = work(url, tmp_path, "--log-format", "text")
    assert re.search(
        rf"INFO +shop working name=on_loop attempt=1 correlation_id=request-7 job_id={job_id}$",
        log,
        re.MULTILINE,
    )


async def test_a_filter_names_the_job_in_a_format_of_ones_own(url: str, tmp_path: Path) -> None:
    (job_id,) = await enqueue(url, "on_loop")
    log = work(url, tmp_path, OWN_FORMAT="%(name)s %(job_name)s %(job_id)s").splitlines()
    assert f"shop on_loop {job_id}" in log
    assert log[0] == "holdfast None None"


@pytest.mark.parametrize(
    ("options", "environment", "logged"),
    [
        ([], {}, False),
        ([], {"HOLDFAST_LOG_ERRORS": "0"}, False),
        (["--log-errors"], {}, True),
        ([], {"HOLDFAST_LOG_ERRORS": "true"}, True),
        (["--log-errors", "--processes", "1"], {}, True),
    ],
    ids=str,
)
async def test_texts_and_tracebacks_of_errors_are_logged_on_request_only(
    url: str, tmp_path: Path, options: list[str], environment: dict[str, str], logged: bool
) -> None:
    await enqueue(url, "break_down", password=SECRET)
    log = work(url, tmp_path, *options, **environment)
    (line,) = [line for line in lines(log) if line["event"] == "settle"]
    assert line["error_code"] == "RuntimeError"
    assert SECRET not in log
    if logged:
        assert line["error_text"] == "RuntimeError: can't log in with password=***"
        assert "in break_down" in line["traceback"]
        assert "holdfast/worker" not in line["traceback"]
    else:
        assert "log in" not in log
        assert "traceback" not in line


async def test_the_first_line_of_a_worker_says_what_runs_where(url: str, tmp_path: Path) -> None:
    await enqueue(url, "on_loop")
    first = lines(work(url, tmp_path, "--queues", "images,default:3", "--concurrency", "7"))[0]
    assert first.pop("worker_id")
    assert re.fullmatch(r"\d+\.\d+\.\d+\S*", first.pop("version"))
    del first["time"]
    assert first == {
        "level": "info",
        "event": "worker_started",
        "message": "",
        "concurrency": 7,
        "queues": "images,default",
        "database": url,
        "jobs": "break_down,in_child,in_thread,on_loop",
    }


async def test_options_can_be_set_in_the_environment_and_those_given_win(
    url: str, tmp_path: Path
) -> None:
    environment = {
        "HOLDFAST_QUEUES": "images",
        "HOLDFAST_PROCESSES": "2",
        "HOLDFAST_LOG_FORMAT": "text",
        "HOLDFAST_LOG_LEVEL": "info",
    }
    await enqueue(url, "on_loop", "in_thread")
    log = work(url, tmp_path, **environment)
    assert log.count(" child_started ") == log.count(" worker_started ") == 2
    assert log.count("queues=images") == 2
    assert re.findall(r" start name=(\w+)", log) == ["in_thread"]
    given = ["--queues", "default", "--processes", "1", "--log-format", "json"]
    told = lines(work(url, tmp_path, *given, **environment))
    assert [line["queues"] for line in told if line["event"] == "worker_started"] == ["default"]
    assert [line["name"] for line in told if line["event"] == "start"] == ["on_loop"]


async def test_a_process_that_another_started_serves_what_that_one_says(
    url: str, tmp_path: Path
) -> None:
    await enqueue(url, "on_loop")
    birth = {"parent": os.getpid(), "token": "token", "title": "holdfast 1/1"}
    environment = {"HOLDFAST_QUEUES": "images", "HOLDFAST_PROCESSES": "2"}
    first = lines(work_as_our_child(url, tmp_path, "--birth", json.dumps(birth), **environment))[0]
    assert (first["event"], first["queues"]) == ("worker_started", "all")


async def test_a_misspelled_variable_is_told_of(url: str, tmp_path: Path) -> None:
    await enqueue(url, "on_loop")
    log = work(url, tmp_path, HOLDFAST_PROCESES="2", HOLDFAST_QUEUE="images")
    assert "HOLDFAST_PROCESES is not a setting and is ignored; did you mean" in log
    assert "HOLDFAST_QUEUE is not a setting and is ignored; did you mean" in log
