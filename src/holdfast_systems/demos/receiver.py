"""A receiver of webhooks: checks signatures with its own hands, and answers as it was told."""

from __future__ import annotations

import base64
import hashlib
import hmac
from dataclasses import dataclass, field
from typing import Any

from fastapi import FastAPI, HTTPException, Request, Response
from pydantic import BaseModel

from holdfast_systems.serve import serve


class Told(BaseModel):
    """How an endpoint answers: one status after the other, the last one for ever."""

    secret: str
    answers: list[int]


@dataclass
class Endpoint:
    secret: str
    answers: list[int]
    requests: list[dict[str, Any]] = field(default_factory=list)

    def answer(self) -> int:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def make_app() -> FastAPI:
    app = FastAPI(openapi_url=None)
    endpoints: dict[str, Endpoint] = {}

    @app.put("/endpoints/{name}")
    async def tell(name: str, told: Told) -> None:
        """Make an endpoint, or change one; what it has received stays."""
        known = endpoints.get(name)
        received = known.requests if known else []
        endpoints[name] = Endpoint(told.secret, list(told.answers), received)

    @app.post("/hooks/{name}")
    async def receive(name: str, request: Request) -> Response:
        if name not in endpoints:
            raise HTTPException(404)
        endpoint = endpoints[name]
        body = await request.body()
        headers = dict(request.headers)
        genuine = is_genuine(endpoint.secret, headers, body)
        status = endpoint.answer() if genuine else 401
        endpoint.requests.append(
            {"headers": headers, "body": body.decode(), "genuine": genuine, "answered": status}
        )
        return Response(f"answered {status}", status, media_type="text/plain")

    @app.get("/received")
    async def received() -> dict[str, list[dict[str, Any]]]:
        return {name: endpoint.requests for name, endpoint in endpoints.items()}

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
    """Compare as bytes, in a time that tells nothing."""
    return any(hmac.compare_digest(expected.encode(), each.encode()) for each in signatures)


if __name__ == "__main__":
    serve(make_app)
