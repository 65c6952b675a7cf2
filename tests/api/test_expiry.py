"""What is no longer kept is deleted by every server, in small steps."""

from __future__ import annotations

from holdfast import Holdfast
from holdfast.api import make_api
from holdfast.api.expiry import EVERY_SECONDS, Expiry
from holdfast.domain.errors import StoreUnavailable
from holdfast.domain.limits import TIDY_ROWS_MAX
from tests.support.api import served
from tests.support.fast_forward import fast_forward, fast_forwarding
from tests.support.processes import turn
from tests.support.running import execute

LONG_AGO = "'2020-01-01T00:00:00.000000Z'"


async def test_a_server_deletes_expired_keys_and_changes(hf: Holdfast, store_url: str) -> None:
    async with served(hf) as client:
        body = {"action": "cancel", "filter": {"name": "wait"}}
        made = await client.post("/v1/bulk", json=body, headers={"idempotency-key": "k"})
        expiry = make_api(hf).state.service.expiry
        await expiry.tidy()
        assert (await client.get(made.headers["location"])).status_code == 200
        for table in ("api_requests", "bulk_changes"):
            await execute(store_url, f"UPDATE {table} SET expires_at = {LONG_AGO}")
        await expiry.tidy()
        assert (await client.get(made.headers["location"])).status_code == 404
        again = await client.post("/v1/bulk", json=body, headers={"idempotency-key": "k"})
        assert again.json()["id"] != made.json()["id"]


async def test_a_step_is_repeated_until_all_is_deleted(local_hf: Holdfast) -> None:
    left = [3, TIDY_ROWS_MAX, TIDY_ROWS_MAX]

    async def step() -> int:
        return left.pop()

    await Expiry(local_hf._seam, [step]).tidy()
    assert left == []


@fast_forwarding
async def test_a_failure_is_logged_and_does_not_end_it() -> None:
    calls: list[None] = []

    async def step() -> int:
        calls.append(None)
        raise StoreUnavailable("down")

    async with Expiry(Holdfast("sqlite:///unused.db")._seam, [step]).running():
        await turn()
        for times in (1, 2):
            await fast_forward(2 * EVERY_SECONDS)
            assert len(calls) == times
