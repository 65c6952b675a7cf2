"""The server: logins, the API under /services/data, and switches for tests under /_local."""

from __future__ import annotations

import base64
from typing import Any, TypeVar
from urllib.parse import parse_qsl, unquote

import msgspec
from fastapi import FastAPI, HTTPException, Request, Response

from holdfast_systems.documents.salesforce.local import batches, composite, records, seam
from holdfast_systems.documents.salesforce.local.calls import Answer, Call
from holdfast_systems.documents.salesforce.local.errors import ApiError, cannot_read, not_found
from holdfast_systems.documents.salesforce.local.faults import Fault, Faults, Usage
from holdfast_systems.documents.salesforce.local.limits import BODY_BYTES_MAX, URI_BYTES_MAX
from holdfast_systems.documents.salesforce.local.organization import Organization
from holdfast_systems.documents.salesforce.local.queries import Queries
from holdfast_systems.documents.salesforce.local.users import (
    ORGANIZATION_ID,
    LoginRefused,
    Sessions,
)

T = TypeVar("T")

VERSIONS = ("59.0", "60.0", "61.0", "62.0", "63.0", "64.0")
DATA_PATH = "/services/data"
METHODS = ["GET", "POST", "PATCH", "PUT", "DELETE"]


class Server:
    """An organization, its sessions, and the faults that tests have switched on."""

    def __init__(self) -> None:
        self.organization = Organization(seam.now)
        self.sessions = Sessions()
        self.faults = Faults()
        self.usage = Usage()
        self._queries = Queries(self.organization)
        self.organization.before_save = self.faults.before_row

    async def handle(self, request: Request) -> Answer:
        """Answer one HTTP call. All its changes happen without waiting in between."""
        path = request.scope["raw_path"].decode("latin-1").removeprefix(DATA_PATH)
        segments = tuple(unquote(part) for part in path.split("/") if part)
        user = self.sessions.user_of(request.headers.get("authorization", ""))
        self.usage.count()
        body = await _read_body(request)
        fault = self.faults.take(request.method, path)
        await self.faults.before(fault)
        call = Call(
            request.method,
            _checked_version(segments[:1]),
            segments[1:],
            user,
            dict(request.query_params),
            body,
            dict(request.headers),
        )
        answer = self.dispatch(call)
        await self.faults.after(fault)
        if fault is not None and fault.body is not None:
            return Answer(fault.status, fault.body)
        if fault is not None and fault.fails:
            raise fault.error()
        return answer

    def dispatch(self, call: Call) -> Answer:
        match call.path:
            case ("limits",):
                left = max(0, self.usage.limit - self.usage.used)
                daily = {"Max": self.usage.limit, "Remaining": left}
                return Answer(200, {"DailyApiRequests": daily})
            case ("query", *_):
                return self._queries.answer(call)
            case ("sobjects", *_):
                return records.answer(self.organization, call)
            case ("composite", "sobjects", *_):
                return batches.answer(self.organization, call)
            case ("composite",):
                return composite.answer(self.organization, call, self.dispatch)
        raise not_found()


def make_app() -> FastAPI:
    server = Server()
    app = FastAPI(title="Local Salesforce", docs_url=None, redoc_url=None, openapi_url=None)

    @app.post("/services/oauth2/token")
    async def token(request: Request) -> Response:
        return await _log_in(server, request)

    @app.api_route(DATA_PATH + "{path:path}", methods=METHODS)
    async def data(request: Request) -> Response:
        try:
            answer = await server.handle(request)
        except ApiError as error:
            answer = Answer(error.status, error.body())
        except RecursionError:
            answer = Answer(400, cannot_read("the body is nested too deeply").body())
        usage = f"api-usage={server.usage.used}/{server.usage.limit}"
        return _response(answer, {"Sforce-Limit-Info": usage})

    _add_switches(app, server)
    return app


def _add_switches(app: FastAPI, server: Server) -> None:
    async def read(request: Request, kind: type[T]) -> T:
        try:
            return msgspec.json.decode(await request.body(), type=kind)
        except (ValueError, RecursionError) as error:
            raise HTTPException(400, str(error)) from None

    @app.post("/_local/faults")
    async def add_fault(request: Request) -> Response:
        server.faults.add(await read(request, Fault))
        return _response(Answer(200, server.faults.show()))

    @app.get("/_local/faults")
    async def show_faults() -> Response:
        return _response(Answer(200, server.faults.show()))

    @app.delete("/_local/faults", status_code=204)
    async def clear_faults() -> None:
        server.faults.clear()

    @app.put("/_local/usage", status_code=204)
    async def set_usage(request: Request) -> None:
        server.usage = await read(request, Usage)

    @app.delete("/_local/records", status_code=204)
    async def clear_records() -> None:
        server.organization.clear()

    @app.post("/_local/records/age", status_code=204)
    async def age_records(request: Request) -> None:
        seconds = await read(request, int)
        try:
            server.organization.age(seconds)
        except OverflowError:
            raise HTTPException(400, "no time is this far away") from None

    @app.delete("/_local/sessions", status_code=204)
    async def expire_sessions() -> None:
        server.sessions.expire()


async def _log_in(server: Server, request: Request) -> Response:
    body = (await request.body()).decode("latin-1")
    form = {**_basic_credentials(request), **dict(parse_qsl(body))}
    try:
        access_token, user = server.sessions.log_in(form)
    except LoginRefused as refused:
        error = {"error": refused.error, "error_description": refused.description}
        return _response(Answer(400, error))
    instance = f"{request.url.scheme}://{request.url.netloc}"
    answer = {
        "access_token": access_token,
        "instance_url": instance,
        "id": f"{instance}/id/{ORGANIZATION_ID}/{user.id}",
        "token_type": "Bearer",
        "issued_at": str(int(seam.now().timestamp() * 1000)),
    }
    return _response(Answer(200, answer))


def _basic_credentials(request: Request) -> dict[str, str]:
    scheme, _, encoded = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "basic":
        return {}
    try:
        client_id, _, secret = base64.b64decode(encoded, validate=True).decode().partition(":")
    except ValueError:  # not base64, or not UTF-8
        return {}
    return {"client_id": client_id, "client_secret": secret}


async def _read_body(request: Request) -> Any:
    """Read the JSON body, up to the limit; None if the body is empty."""
    if len(request.url.path) + len(request.url.query) > URI_BYTES_MAX:
        raise ApiError("URI_TOO_LONG", "URI Too Long", status=414)
    content = bytearray()
    async for part in request.stream():
        content += part
        if len(content) > BODY_BYTES_MAX:
            raise ApiError("REQUEST_ENTITY_TOO_LARGE", "Request Entity Too Large", status=413)
    if not content:
        return None
    try:
        return msgspec.json.decode(content)
    except ValueError as error:  # not JSON, or not UTF-8
        raise cannot_read(str(error)) from None


def _checked_version(segments: tuple[str, ...]) -> str:
    for version in VERSIONS:
        if segments == (f"v{version}",):
            return version
    raise not_found()


def _response(answer: Answer, headers: dict[str, str] | None = None) -> Response:
    all_headers = {**answer.headers, **(headers or {})}
    if answer.status == 204:
        return Response(status_code=204, headers=all_headers)
    if isinstance(answer.body, bytes):
        return Response(answer.body, answer.status, all_headers, "application/octetstream")
    content = msgspec.json.encode(answer.body)
    return Response(content, answer.status, all_headers, "application/json;charset=UTF-8")
