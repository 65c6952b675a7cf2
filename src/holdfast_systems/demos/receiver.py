"""A webhook receiver: checks signatures independently of Holdfast, and answers as instructed."""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import Any

import aiohttp
from fastapi import FastAPI, HTTPException, Request, Response
from pydantic import BaseModel

from holdfast_systems.serve import serve


class Endpoint(BaseModel):
    """Answers with one status after the other, and keeps giving the last one."""

    secret: str
    answers: list[int]
    requests: list[dict[str, Any]] = []


def make_app() -> FastAPI:
    app = FastAPI(openapi_url=None)
    endpoints: dict[str, Endpoint] = {}

    @app.put("/endpoints/{name}")
    async def set_endpoint(name: str, endpoint: Endpoint) -> None:
        """Create an endpoint or change its answers; the requests so far are kept."""
        if name in endpoints:
            endpoint.requests = endpoints[name].requests
        endpoints[name] = endpoint

    @app.post("/hooks/{name}")
    async def receive(name: str, request: Request) -> Response:
        if name not in endpoints:
            raise HTTPException(404)
        endpoint = endpoints[name]
        body = await request.body()
        headers = dict(request.headers)
        genuine = is_genuine(endpoint.secret, headers, body)
        answers = endpoint.answers
        status = (answers.pop(0) if len(answers) > 1 else answers[0]) if genuine else 401
        endpoint.requests.append(
            {"headers": headers, "body": body.decode(), "genuine": genuine, "answered": status}
        )
        return Response(f"answered {status}", status, media_type="text/plain")

    @app.get("/endpoints/{name}")
    async def endpoint(name: str) -> Endpoint:
        return endpoints[name]

    return app


def is_genuine(secret: str, headers: dict[str, str], body: bytes) -> bool:
    if "x-bpc-signature" in headers:
        expected = "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
        return _is_among(expected, [headers["x-bpc-signature"]])
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signed = f"{headers.get('webhook-id')}.{headers.get('webhook-timestamp')}.".encode() + body
    expected = "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    return _is_among(expected, headers.get("webhook-signature", "").split(" "))


def _is_among(expected: str, signatures: list[str]) -> bool:
    return any(hmac.compare_digest(expected.encode(), each.encode()) for each in signatures)


async def set_answers(receiver: str, name: str, secret: str, answers: list[int]) -> None:
    """Tell the receiver at this address how an endpoint answers."""
    async with aiohttp.ClientSession(receiver, raise_for_status=True) as client:
        endpoint = {"secret": secret, "answers": answers}
        async with client.put(f"/endpoints/{name}", json=endpoint):
            pass


async def read_requests(receiver: str, name: str) -> list[dict[str, Any]]:
    """Read the requests that an endpoint received so far."""
    async with (
        aiohttp.ClientSession(receiver, raise_for_status=True) as client,
        client.get(f"/endpoints/{name}") as response,
    ):
        return Endpoint.model_validate(await response.json()).requests


if __name__ == "__main__":
    serve("holdfast_systems.demos.receiver:make_app")
