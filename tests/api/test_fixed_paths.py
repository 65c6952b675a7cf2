"""Routes with a fixed path are called without FastAPI, and answer as if they were not."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from fastapi import FastAPI, Request
from starlette.responses import Response

from holdfast import Holdfast
from holdfast.api import AsCaller, Router, Service, answer, describes, make_api
from holdfast.domain.errors import StoreUnavailable

ERRORS: dict[str, Exception] = {
    "unexpected": RuntimeError("a bug"),
    "down": StoreUnavailable("no route to host"),
}


def routes(_service: Service) -> Router:
    router = Router(prefix="/tests")
    described: Any = describes("read", {200: dict[str, str]})

    @router.get("/fixed", **described)
    async def fixed(request: Request, caller: AsCaller) -> Response:
        if error := ERRORS.get(request.headers.get("error", "")):
            raise error
        return answer({"caller": caller.name})

    @router.get("/varying/{part}", **described)
    async def varying(request: Request, part: str, caller: AsCaller) -> Response:
        return await fixed(request, caller)

    return router


def client_for(app: FastAPI) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1")


@pytest.mark.parametrize("error", ["", *ERRORS])
async def test_a_fixed_path_answers_like_any_other(local_hf: Holdfast, error: str) -> None:
    local_hf.add_routes(routes)
    headers = {"error": error, "x-correlation-id": "c-1"}
    async with client_for(make_api(local_hf, upkeep=False)) as client:
        fixed = await client.get("/tests/fixed", headers=headers)
        varying = await client.get("/tests/varying/1", headers=headers)
    assert (fixed.status_code, fixed.content) == (varying.status_code, varying.content)
    assert fixed.status_code == {"": 200, "unexpected": 500, "down": 503}[error]
    assert fixed.headers["x-correlation-id"] == "c-1"


async def test_other_methods_of_a_fixed_path_are_refused(local_hf: Holdfast) -> None:
    local_hf.add_routes(routes)
    async with client_for(make_api(local_hf, upkeep=False)) as client:
        refused = await client.put("/tests/fixed")
    assert (refused.status_code, refused.headers["allow"]) == (405, "GET")
    assert refused.json()["code"] == "no-such-method"


async def test_a_mounted_api_finds_its_paths_below_the_mount(local_hf: Holdfast) -> None:
    local_hf.add_routes(routes)
    outer = FastAPI()
    outer.mount("/tests", make_api(local_hf, upkeep=False))
    async with client_for(outer) as client:
        assert (await client.get("/tests/tests/fixed")).status_code == 200
        assert (await client.get("/tests/fixed")).status_code == 404
