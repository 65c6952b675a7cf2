"""The server: logins, the API below /services/data, and the switches for tests below /_local."""

from __future__ import annotations

import base64
from typing import Any
from urllib.parse import parse_qsl, unquote

import msgspec
from fastapi import FastAPI, Request, Response

from holdfast_systems.documents.salesforce.local import batches, composite, records, seam
from holdfast_systems.documents.salesforce.local.calls import Answer, Call
from holdfast_systems.documents.salesforce.local.errors import (
    ApiError,
    cannot_read,
    not_found,
)
from holdfast_systems.documents.salesforce.local.faults import Faults, Usage
from holdfast_systems.documents.salesforce.local.limits import (
    BODY_BYTES_MAX,
    URI_BYTES_MAX,
)
from holdfast_systems.documents.salesforce.local.organization import Organization
from holdfast_systems.documents.salesforce.local.queries import Queries
from holdfast_systems.documents.salesforce.local.users import (
    ORGANISATION_ID,
    LoginRefused,
    Sessions,
)

VERSIONS = ("59.0", "60.0", "61.0", "62.0", "63.0", "64.0")
DATA_PATH = "/services/data"
TOO_DEEP = "lists and objects are nested too deeply"
METHODS = ["GET", "POST", "PATCH", "PUT", "DELETE"]


class Server:
    """An organization and what the API keeps about its callers."""

    def __init__(self) -> None:
        self.organization = Organization(seam.now)
        self.sessions = Sessions()
        self.faults = Faults()
        self.usage = Usage()
        self._queries = Queries(self.organization)
        self.organization.before_save = self.faults.before_row

    async def handle(self, request: Request) -> Answer:
        """Answer one call over HTTP; what it changes is changed in one go."""
        path = request.scope["raw_path"].decode("latin-1").removeprefix(DATA_PATH)
        segments = tuple(unquote(part) for part in path.split("/") if part)
        if not segments:
            return Answer(200, [_version(each) for each in VERSIONS])
        user = self.sessions.user_of(request.headers.get("authorization", ""))
        self.usage.count()
        body = await _read_body(request)
        fault = self.faults.take(request.method, path)
        await self.faults.before(fault)
        call = Call(
            request.method,
            _checked_version(segments[0]),
            segments[1:],
            user,
            dict(request.query_params),
            body,
            dict(request.headers),
        )
        answer = self.dispatch(call)
        if fault is not None and fault.body is not None:
            return Answer(fault.status, fault.body)
        if fault is not None and fault.fails:
            raise fault.error()
        return answer

    def dispatch(self, call: Call) -> Answer:
        match call.path:
            case ():
                return Answer(200, _resources(call.version))
            case ("limits",):
                return Answer(200, {"DailyApiRequests": self._daily_requests()})
            case ("query" | "queryAll", *_):
                return self._queries.answer(call)
            case ("sobjects", *_):
                return records.answer(self.organization, call)
            case ("composite", "sobjects", *_):
                return batches.answer(self.organization, call)
            case ("composite",):
                return composite.answer(self.organization, call, self.dispatch)
        raise not_found()

    def _daily_requests(self) -> dict[str, int]:
        left = max(0, self.usage.limit - self.usage.used)
        return {"Max": self.usage.limit, "Remaining": left}


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
            answer = Answer(400, cannot_read(TOO_DEEP).body())
        usage = f"api-usage={server.usage.used}/{server.usage.limit}"
        return _response(answer, {"Sforce-Limit-Info": usage})

    _add_switches(app, server)
    return app


def _add_switches(app: FastAPI, server: Server) -> None:
    @app.post("/_local/faults")
    async def add_fault(request: Request) -> Response:
        try:
            server.faults.add(await request.body())
        except (ValueError, RecursionError) as error:
            return _response(Answer(400, {"error": str(error)}))
        return _response(Answer(200, server.faults.show()))

    @app.get("/_local/faults")
    async def show_faults() -> Response:
        return _response(Answer(200, server.faults.show()))

    @app.delete("/_local/faults")
    async def clear_faults() -> Response:
        server.faults.clear()
        return _response(Answer(204))

    @app.put("/_local/usage")
    async def set_usage(request: Request) -> Response:
        try:
            server.usage = msgspec.json.decode(await request.body(), type=Usage)
        except (ValueError, RecursionError) as error:
            return _response(Answer(400, {"error": str(error)}))
        return _response(Answer(204))

    @app.delete("/_local/records")
    async def clear_records() -> Response:
        server.organization.clear()
        return _response(Answer(204))

    @app.post("/_local/records/age")
    async def age_records(request: Request) -> Response:
        try:
            server.organization.age(msgspec.json.decode(await request.body(), type=int))
        except (ValueError, RecursionError) as error:
            return _response(Answer(400, {"error": str(error)}))
        return _response(Answer(204))

    @app.delete("/_local/sessions")
    async def expire_sessions() -> Response:
        server.sessions.expire()
        return _response(Answer(204))


async def _log_in(server: Server, request: Request) -> Response:
    form = {
        **_basic_credentials(request),
        **dict(parse_qsl((await request.body()).decode("latin-1"))),
    }
    try:
        access_token, user = server.sessions.log_in(form.get("grant_type", ""), form)
    except LoginRefused as refused:
        body = {"error": refused.error, "error_description": refused.description}
        return _response(Answer(400, body))
    instance = f"{request.url.scheme}://{request.url.netloc}"
    issued_milliseconds = int(seam.now().timestamp() * 1000)
    answer = {
        "access_token": access_token,
        "instance_url": instance,
        "id": f"{instance}/id/{ORGANISATION_ID}/{user.id}",
        "token_type": "Bearer",
        "issued_at": str(issued_milliseconds),
    }
    return _response(Answer(200, answer))


def _basic_credentials(request: Request) -> dict[str, str]:
    scheme, _, encoded = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "basic":
        return {}
    try:
        client_id, _, secret = base64.b64decode(encoded, validate=True).decode().partition(":")
    except ValueError:  # no base64, or not of UTF-8
        return {}
    return {"client_id": client_id, "client_secret": secret}


async def _read_body(request: Request) -> Any:
    """Read the JSON of a body within its limit; no body is None."""
    if len(request.url.path) + len(request.url.query) > URI_BYTES_MAX:
        raise ApiError("URI_TOO_LONG", "URI Too Long", status=414)
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > BODY_BYTES_MAX:
            raise ApiError("REQUEST_ENTITY_TOO_LARGE", "Request Entity Too Large", status=413)
        parts.append(part)
    content = b"".join(parts)
    if not content:
        return None
    try:
        return msgspec.json.decode(content)
    except ValueError as error:  # also what is not UTF-8
        raise cannot_read(str(error)) from None


def _checked_version(segment: str) -> str:
    if segment.removeprefix("v") not in VERSIONS or not segment.startswith("v"):
        raise not_found()
    return segment.removeprefix("v")


def _version(version: str) -> dict[str, str]:
    return {"label": f"API {version}", "url": f"/services/data/v{version}", "version": version}


def _resources(version: str) -> dict[str, str]:
    names = ("composite", "limits", "query", "queryAll", "sobjects")
    return {name: f"/services/data/v{version}/{name}" for name in names}


def _response(answer: Answer, headers: dict[str, str] | None = None) -> Response:
    all_headers = {**answer.headers, **(headers or {})}
    if answer.status == 204:
        return Response(status_code=204, headers=all_headers)
    if isinstance(answer.body, bytes):
        media_type = "application/octetstream"
        return Response(answer.body, answer.status, all_headers, media_type)
    content = msgspec.json.encode(answer.body)
    return Response(content, answer.status, all_headers, "application/json;charset=UTF-8")
