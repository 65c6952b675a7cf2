"""One app on several event loops: the stores of those that ended are in nobody's way."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from holdfast import Filter, Holdfast


async def look(hf: Holdfast) -> int:
    return len((await hf.jobs.list(Filter())).jobs)


async def look_and_close(hf: Holdfast) -> int:
    try:
        return await look(hf)
    finally:
        await hf.close()


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
def test_a_loop_that_was_closed_while_it_opened_the_database_is_in_nobodys_way(
    local_url: str,
) -> None:
    hf = Holdfast(local_url)
    loop = asyncio.new_event_loop()
    looking = loop.create_task(look(hf))
    loop.run_until_complete(asyncio.wait([looking], timeout=0))
    loop.close()
    assert asyncio.run(look_and_close(hf)) == 0


async def test_a_failure_that_nobody_waited_for_is_not_told_later(tmp_path: Path) -> None:
    hf = Holdfast(f"sqlite:///{tmp_path / 'later' / 'jobs.db'}")
    looking = asyncio.create_task(look(hf))
    await asyncio.wait([looking], timeout=0)
    looking.cancel()
    await asyncio.wait(asyncio.all_tasks() - {asyncio.current_task()})  # the opening, too, fails
    (tmp_path / "later").mkdir()
    assert await look_and_close(hf) == 0
