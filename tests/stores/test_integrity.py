"""Many callers and few connections."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import Context, Holdfast
from tests.support.running import QUICK, WAIT_SECONDS_MAX

CALLERS = 30


@pytest.mark.parametrize("store_url", ["pg15"], indirect=True)
async def test_a_pool_of_one_connection_serves_many_callers_one_after_the_other(
    store_url: str,
) -> None:
    """Even handlers that enqueue and look while they keep a transaction of their own open."""
    async with Holdfast(store_url, pool_size=1, **QUICK) as hf:

        @hf.job
        async def leaf(number: int) -> None:
            return None

        @hf.job
        async def branch(ctx: Context, number: int) -> None:
            async with ctx.completing() as connection:
                await connection.execute("SELECT 1")
                await ctx.progress(number)
                child = await leaf.enqueue(number)
                assert (await hf.get(child.id)).name == "leaf"

        await asyncio.gather(*[branch.enqueue(number) for number in range(CALLERS)])
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            report = await hf.run_worker(concurrency=CALLERS, until_empty=True)
        assert report.succeeded == 2 * CALLERS
