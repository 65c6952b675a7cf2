"""What an attacker tried that no single part can stop."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import Holdfast, State
from holdfast.api import make_api
from holdfast.api.gate import Gate
from holdfast.api.limits import KEY_KEPT_SECONDS
from holdfast.api.server import make_server
from holdfast.domain.errors import ConfigurationError
from holdfast.operations.pepper import VARIABLE
from tests.support.api import client_of, served
from tests.support.leasing import job_of, make_app
from tests.support.postgres import free_port
from tests.support.processes import wait_until
from tests.support.seams import HandSeam


async def test_a_key_that_is_revoked_while_it_waits_gets_no_job(store_url: str) -> None:
    seam = HandSeam()
    hf = make_app(store_url, seam=seam)
    key = await hf.keys.create("worker", scopes=["work"])
    async with served(hf) as client:
        client.headers["authorization"] = f"Bearer {key.key}"
        waiting = asyncio.create_task(client.post("/v1/leases", json={"wait_seconds": 50}))
        await wait_until(lambda: hf.claims, "the first look")
        await hf.keys.revoke(key.id)
        seam.seconds += KEY_KEPT_SECONDS
        job = await job_of(hf).enqueue(1)
        refused = await waiting
        assert (refused.status_code, refused.json()["code"]) == (401, "key-missing")

        async def is_given_back() -> bool:
            found = await hf.get(job.id)
            return (found.state, found.attempts) == (State.QUEUED, 0)

        await wait_until(is_given_back, "the job is due for others")


async def test_a_key_that_is_revoked_while_it_waits_gets_no_result(store_url: str) -> None:
    seam = HandSeam()
    hf = make_app(store_url, seam=seam)
    key = await hf.keys.create("reader", scopes=["read"])
    job = await job_of(hf).enqueue(1)
    server = make_server(make_api(hf, upkeep=False))
    async with client_of(server) as client:
        client.headers["authorization"] = f"Bearer {key.key}"
        path = f"/v1/jobs/{job.id}/result?wait_seconds=50"
        waiting = asyncio.create_task(client.get(path))
        await wait_until(lambda: server.service.watch.jobs, "the request waits")
        await hf.keys.revoke(key.id)
        seam.seconds += KEY_KEPT_SECONDS
        await hf.jobs.cancel(job.id)
        assert (await waiting).status_code == 401


async def test_an_open_address_needs_the_pepper_even_while_the_database_is_down(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    gate = Gate(Holdfast(f"postgresql://127.0.0.1:{free_port()}/nowhere"))
    with pytest.raises(ConfigurationError, match=f"needs {VARIABLE}"):
        await gate.check_open_to("0.0.0.0")
