"""Every route of webhooks against generated requests: no server error, and no answer that the
OpenAPI document does not describe."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.domain.keys import SCOPES
from tests.api.test_schemathesis import Client
from tests.webhooks.shop import both_stores
from tests.webhooks.test_api import RECIPES, made_place

PATHS = {route.split()[1] for route in RECIPES}


@pytest.mark.hypothesis
@pytest.mark.heavy
@both_stores
async def test_no_request_gets_a_server_error_or_an_undocumented_answer(store_url: str) -> None:
    async with made_place(store_url) as place:
        known = [str(await place.subscription(None)) for _ in range(2)]
        await place.letter(None)
        document = (await place.client.get("/openapi.json")).json()
        document["paths"] = {
            path: item for path, item in document["paths"].items() if path in PATHS
        }
        assert document["paths"].keys() == PATHS
        key = await place.hf.keys.create("tester", scopes=SCOPES, requests_per_second=10_000)
        url = str(place.client.base_url)
        caller = Client(url, key.key, known, "subscription_id")
        await asyncio.to_thread(caller.try_all, document)
    assert caller.seen.keys() >= {200, 201, 400, 404, 422}
