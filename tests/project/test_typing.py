"""What users' type checkers say about job functions, their arguments and their results."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.forks import ROOT
from tests.support.processes import PROGRAM_SECONDS_MAX

SAMPLE = """
from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, assert_type
from uuid import UUID

from pydantic import BaseModel

from holdfast import Context, Holdfast, Job, JobFunction, JobSchemas, Retry

hf = Holdfast("sqlite:///jobs.db")


class Order(BaseModel):
    lines: list[int]


@hf.job(queue="images", retry=Retry.exponential(max_attempts=5), timeout_seconds=30)
async def resize(ctx: Context, image: str, width: int = 800) -> dict[str, int]:
    return {"width": width}


@hf.job
def shout(text: str) -> str:
    return text.upper()


@hf.job
async def greet(ctx: Context, name: str) -> str:
    return name


@hf.job
async def ship(order: Order) -> list[Order]:
    return [order]


@hf.job(executor="process")
def count(ctx: Context, words: list[str]) -> int:
    return len(words)


class Parts:
    resize: JobFunction[[str, int], dict[str, int]]
    greet: JobFunction[[str], str]


async def right(ctx: Context, job_id: UUID) -> None:
    job: Job = await resize.enqueue("a.png", width=640)
    assert_type(await resize.enqueue("a.png"), Job[dict[str, int]])
    assert_type(await resize.options(priority=0).enqueue("a.png"), Job[dict[str, int]])
    assert_type(shout.enqueue_sync("a"), Job[str])
    assert_type(await ship.enqueue(Order(lines=[1])), Job[list[Order]])
    assert_type(await hf.result(await ship.enqueue(Order(lines=[]))), list[Order])
    assert_type(await hf.result(await count.enqueue(["a"]), timeout_seconds=5), int)
    assert_type(await hf.result(job_id), Any)
    assert_type(hf.result_sync(shout.enqueue_sync("a")), str)
    assert_type(hf.result_sync(job_id), Any)
    assert_type(await hf.for_tenant("t").enqueue(shout, "a"), Job[str])
    assert_type(await hf.for_tenant("t").result(await greet.enqueue("a")), str)
    await hf.enqueue_many([resize.call("a.png"), shout.call("b"), greet.call(name="c")])
    assert_type(shout("a"), str)
    assert_type(await greet(ctx, "a"), str)
    greeting: Coroutine[Any, Any, str] = greet(ctx, name="a")
    await greeting
    assert_type(await ship(Order(lines=[])), list[Order])
    assert_type(count(ctx, ["a"]), int)
    assert_type(shout.options(priority=1)("a"), str)
    assert_type(hf.schemas(), dict[str, JobSchemas])
    assert_type(ship.arguments_schema, dict[str, Any])
    parts = Parts()
    parts.greet = greet
    assert job.last_error is None


async def wrong(ctx: Context) -> None:
    await resize.enqueue(1)  # wrong
    await resize.enqueue("a.png", width="wide")  # wrong
    await resize.enqueue()  # wrong
    await resize.enqueue("a.png", height=3)  # wrong
    await resize.options(priority=0).enqueue(1)  # wrong
    await resize.options(priority="high").enqueue("a.png")  # wrong
    resize.call(1)  # wrong
    shout.enqueue_sync(5)  # wrong
    hf.get_sync("a job")  # wrong
    hf.queues.pause_sync("mail", reason="none")  # wrong
    await hf.get_sync(hf.new_id())  # wrong
    await greet.enqueue(5)  # wrong
    await greet.enqueue(ctx, "a")  # wrong
    await ship.enqueue({"lines": [1]})  # wrong
    await hf.enqueue_many([resize])  # wrong
    hf.job(timeout="5")(right)  # wrong
    size: int = await hf.result(await greet.enqueue("a"))  # wrong
    job: Job[int] = await greet.enqueue("a")  # wrong
    await hf.for_tenant("t").enqueue(shout, 5)  # wrong
    await hf.result("9a51")  # wrong
    shout(5)  # wrong
    shout("a").append("b")  # wrong
    await greet("a")  # wrong
    greet(ctx, "a").upper()  # wrong
    await ship({"lines": []})  # wrong
    Parts().greet = shout.enqueue  # wrong
    Parts().resize = greet  # wrong
"""


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("mypy", ["--strict", "--config-file=pyproject.toml", "--no-pretty"]),
        ("pyright", ["--pythonpath", sys.executable]),
    ],
)
def test_wrong_arguments_and_results_are_errors_and_right_ones_are_not(
    command: str, options: Sequence[str], tmp_path: Path
) -> None:
    sample = tmp_path / "sample.py"
    sample.write_text(SAMPLE, encoding="utf-8")
    checked = subprocess.run(
        [sys.executable, "-m", command, *options, str(sample)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PROGRAM_SECONDS_MAX,
        check=False,
    )
    told = {int(line) for line in re.findall(r"sample\.py:(\d+):.* error:", checked.stdout)}
    told |= {int(line) for line in re.findall(r"sample\.py:(\d+):\d+ - error", checked.stdout)}
    lines = SAMPLE.splitlines()
    wrong = {number for number, line in enumerate(lines, 1) if line.endswith("# wrong")}
    assert told == wrong, checked.stdout + checked.stderr
