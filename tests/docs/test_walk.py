"""The page that walks through the code is correct for both databases."""

from __future__ import annotations

import re
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import pytest

from holdfast import Context, Holdfast, State
from tests.support.forks import ROOT

PACKAGE = ROOT / "src" / "holdfast"
PAGE = (ROOT / "docs" / "internals" / "walk.md").read_text(encoding="utf-8")
HOPS_MAX = 14
FILES_MAX = 8
HOP = re.compile(r"^\d+\. (.+?): ", re.MULTILINE | re.DOTALL)
CALL = re.compile(r"`([\w/]+\.py)`\s+`([\w.]+)`")
NAMED = re.compile(r"`([\w/]+\.py)`")
FOLDERS = {"sqlite": "stores/sqlite/", "postgres": "stores/postgres/"}


@dataclass
class Trace:
    """The calls of one job in the handlers' thread, in order, and the files of all threads."""

    calls: list[tuple[str, str]] = field(default_factory=list)
    files: set[str] = field(default_factory=set)


@pytest.fixture
async def trace(store_url: str) -> Trace:
    found = Trace()
    here = threading.get_ident()
    listening = False

    def note(frame: FrameType, event: str, argument: object) -> None:
        path = Path(frame.f_code.co_filename)
        if listening and event == "call" and path.is_relative_to(PACKAGE):
            file = path.relative_to(PACKAGE).as_posix()
            found.files.add(file)
            if threading.get_ident() == here:
                found.calls.append((file, frame.f_code.co_qualname))

    threading.setprofile(note)  # for the threads that the store starts when it opens
    try:
        async with Holdfast(store_url) as hf:

            @hf.job
            async def double(ctx: Context, number: int) -> int:
                return 2 * number

            await hf.run_worker(until_empty=True)  # imports what a worker needs
            sys.setprofile(note)
            listening = True
            job = await double.enqueue(21)
            await hf.run_worker(until_empty=True)
            listening = False
            sys.setprofile(None)
            assert (await hf.get(job.id)).state is State.SUCCEEDED
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return found


def test_the_walk_names_the_calls_that_a_job_makes_in_their_order(
    trace: Trace, store_url: str
) -> None:
    (other,) = [folder for name, folder in FOLDERS.items() if not store_url.startswith(name)]
    walk = [
        [call for call in CALL.findall(hop) if not call[0].startswith(other)]
        for hop in HOP.findall(PAGE)
    ]
    made = iter(trace.calls)
    missed = [hop for hop in walk if not hop or hop[0] not in made]
    assert not missed, "these did not happen, or not in this order"
    assert len(walk) <= HOPS_MAX
    assert len({file for hop in walk for file, _ in hop}) <= FILES_MAX


def test_the_walk_leaves_out_no_file_that_a_job_touches(trace: Trace) -> None:
    assert trace.files - set(NAMED.findall(PAGE)) == set()


def test_the_walk_names_only_files_that_exist() -> None:
    named = NAMED.findall(PAGE)
    assert [name for name in named if not (PACKAGE / name).is_file()] == []
