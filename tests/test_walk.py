"""The page that shows a job's way through the code tells the truth."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import FrameType
from typing import Any

from holdfast import Context, Holdfast, State

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "holdfast"
HOP = re.compile(r"^\d+\. `([\w/]+\.py)` `([\w.]+)`", re.MULTILINE)


async def test_the_walk_names_the_calls_that_a_job_makes_in_their_order(tmp_path: Path) -> None:
    walk = HOP.findall((ROOT / "docs" / "internals" / "walk.md").read_text())
    called = iter(await trace_one_job(tmp_path))
    missed = [hop for hop in walk if hop not in called]
    assert not missed, "these did not happen, or not in this order"
    assert len(walk) == 13
    assert len({file for file, _ in walk}) == 8


async def trace_one_job(folder: Path) -> list[tuple[str, str]]:
    hf = Holdfast(f"sqlite:///{folder}/jobs.db")

    @hf.job
    async def double(ctx: Context, number: int) -> int:
        return 2 * number

    calls: list[tuple[str, str]] = []

    def note(frame: FrameType, event: str, argument: Any) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(PACKAGE):
            calls.append((path.relative_to(PACKAGE).as_posix(), frame.f_code.co_qualname))

    async with hf:
        sys.setprofile(note)
        try:
            job = await double.enqueue(21)
            await hf.run_worker(until_empty=True)
        finally:
            sys.setprofile(None)
        assert (await hf.get(job.id)).state is State.SUCCEEDED
    return calls
