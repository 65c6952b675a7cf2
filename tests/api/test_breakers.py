"""/v1/breakers: open, close and reset by hand."""

from __future__ import annotations

from holdfast import Holdfast
from tests.support.api import served


async def test_breakers_are_opened_closed_and_reset(store_url: str) -> None:
    hf = Holdfast(store_url)
    async with served(hf) as client:
        path = "/v1/breakers/gateway%2Feu"
        assert (await client.get(path)).json()["code"] == "not-found"
        opened = (await client.post(f"{path}/open", json={"because": "it moves"})).json()
        assert (opened["key"], opened["opened_by"]) == ("gateway/eu", "local")
        assert opened["opened_because"] == "it moves"
        assert (await client.get("/v1/breakers")).json() == {"breakers": [opened]}
        closed = (await client.post(f"{path}/close")).json()
        assert closed["opened_at"] is None
        assert (await client.post(f"{path}/close")).json()["code"] == "wrong-state"
        assert (await client.post(f"{path}/reset")).status_code == 204
        assert (await client.get("/v1/breakers")).json() == {"breakers": []}
        assert (await client.post(f"{path}/reset")).json()["code"] == "wrong-state"
        refused = await client.post("/v1/breakers/a%00/open")
        assert refused.json()["errors"][0]["parameter"] == "key"
