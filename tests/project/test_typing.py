"""What users' type checkers say about calls of job functions."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.support.forks import ROOT
from tests.support.processes import PROGRAM_SECONDS_MAX

SAMPLE = """
from __future__ import annotations

from holdfast import Context, Holdfast, Job, Retry

hf = Holdfast("sqlite:///jobs.db")


@hf.job(queue="images", retry=Retry.exponential(max_attempts=5), timeout_seconds=30)
async def resize(ctx: Context, image: str, width: int = 800) -> dict[str, int]:
    return {"width": width}


@hf.job
def shout(text: str) -> str:
    return text.upper()


@hf.job
async def greet(ctx: Context, name: str) -> str:
    return name


async def right() -> None:
    job: Job = await resize.enqueue("a.png", width=640)
    await resize.options(priority=0, delay_seconds=60, tenant="t").enqueue("a.png", 640)
    await hf.enqueue_many([resize.call("a.png"), shout.call("b"), greet.call(name="c")])
    shout.enqueue_sync("a")
    assert job.last_error is None


async def wrong() -> None:
    await resize.enqueue(1)  # wrong
    await resize.enqueue("a.png", width="wide")  # wrong
    await resize.enqueue()  # wrong
    await resize.enqueue("a.png", height=3)  # wrong
    await resize.options(priority=0).enqueue(1)  # wrong
    await resize.options(priority="high").enqueue("a.png")  # wrong
    resize.call(1)  # wrong
    shout.enqueue_sync(5)  # wrong
    await greet.enqueue(5)  # wrong
    await hf.enqueue_many([resize])  # wrong
    hf.job(timeout="5")(right)  # wrong
"""


def test_wrong_arguments_are_errors_and_right_ones_are_not(tmp_path: Path) -> None:
    sample = tmp_path / "sample.py"
    sample.write_text(SAMPLE, encoding="utf-8")
    options = ["--strict", "--no-error-summary", "--hide-error-context", "--no-pretty"]
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file=pyproject.toml", *options, str(sample)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PROGRAM_SECONDS_MAX,
        check=False,
    )
    told = {int(line) for line in re.findall(r"sample\.py:(\d+): error:", checked.stdout)}
    lines = SAMPLE.splitlines()
    wrong = {number for number, line in enumerate(lines, 1) if line.endswith("# wrong")}
    assert told == wrong, checked.stdout + checked.stderr
