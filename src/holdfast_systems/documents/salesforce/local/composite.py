"""The resource composite: several calls in one, which can refer to the results of earlier ones."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl, unquote

from holdfast_systems.documents.salesforce.local.calls import Answer, Call
from holdfast_systems.documents.salesforce.local.errors import ApiError, cannot_read, not_allowed
from holdfast_systems.documents.salesforce.local.limits import COMPOSITE_CALLS_MAX
from holdfast_systems.documents.salesforce.local.organization import Organization, Rollback

REFERENCE = re.compile(r"@\{(\w+)\.([^{}]+)\}")
REFERENCE_ID = re.compile(r"\w{1,255}", re.ASCII)
STEP = re.compile(r"\.?([^.\[\]]+)|\[(\d+)\]")
DATA_PATH = re.compile(r"/services/data/v(\d+\.\d)/([^/].*)")
HALTED = "PROCESSING_HALTED"
ROLLED_BACK = (
    "The transaction was rolled back since another operation in the same transaction failed."
)


def answer(organization: Organization, call: Call, dispatch: Callable[[Call], Answer]) -> Answer:
    if call.method != "POST":
        raise not_allowed(call.method)
    requests = _requests(call)
    all_or_none = bool(call.body.get("allOrNone", False))
    answers: dict[str, Answer] = {}
    with organization.transaction():
        for request in requests:
            reply = _answer_one(call, request, answers, dispatch)
            answers[request["referenceId"]] = reply
            if all_or_none and _failed(reply):
                answers = _rolled_back(requests, answers)
                raise Rollback
    shown = [
        {
            "body": reply.body,
            "httpHeaders": dict(reply.headers),
            "httpStatusCode": reply.status,
            "referenceId": name,
        }
        for name, reply in answers.items()
    ]
    return Answer(200, {"compositeResponse": shown})


def _answer_one(
    call: Call,
    request: dict[str, Any],
    answers: dict[str, Answer],
    dispatch: Callable[[Call], Answer],
) -> Answer:
    try:
        address, _, query = str(_resolved(request["url"], answers)).partition("?")
        found = DATA_PATH.fullmatch(address)
        if found is None:
            raise ApiError("INVALID_INPUT", f"not a URL of this API: {address}")
        path = tuple(unquote(part) for part in found[2].split("/") if part)
        if path[0] == "composite" and len(path) == 1:
            raise ApiError("INVALID_INPUT", "a composite call can't contain another one")
        body = _resolved(request.get("body"), answers)
        parameters = dict(parse_qsl(query))
        return dispatch(Call(str(request["method"]), found[1], path, call.user, parameters, body))
    except ApiError as error:
        return Answer(error.status, error.body())


def _failed(reply: Answer) -> bool:
    """Did the call fail? One for many records fails if any record was refused."""
    results = reply.body if isinstance(reply.body, list) else []
    return reply.status >= 400 or any(
        isinstance(result, dict) and result.get("success") is False for result in results
    )


def _requests(call: Call) -> list[dict[str, Any]]:
    requests = call.body.get("compositeRequest") if isinstance(call.body, dict) else None
    if not isinstance(requests, list) or not requests:
        raise cannot_read("compositeRequest must be a list of calls")
    if len(requests) > COMPOSITE_CALLS_MAX:
        raise ApiError("LIMIT_EXCEEDED", f"Limit of {COMPOSITE_CALLS_MAX} sub requests exceeded")
    seen: set[str] = set()
    for request in requests:
        if not isinstance(request, dict) or not {"method", "url", "referenceId"} <= set(request):
            raise cannot_read("each call needs method, url and referenceId")
        name = request["referenceId"]
        if not isinstance(name, str) or not REFERENCE_ID.fullmatch(name) or name in seen:
            message = f"Provided referenceId ('{name}') must be unique and have only letters"
            raise ApiError("INVALID_INPUT", message)
        seen.add(name)
    return requests


def _resolved(value: Any, answers: dict[str, Answer]) -> Any:
    """Replace every reference in a body or URL with a value from an earlier answer."""
    if isinstance(value, str):
        return REFERENCE.sub(lambda found: str(_referred(found, answers)), value)
    if isinstance(value, dict):
        return {name: _resolved(part, answers) for name, part in value.items()}
    if isinstance(value, list):
        return [_resolved(part, answers) for part in value]
    return value


def _referred(found: re.Match[str], answers: dict[str, Answer]) -> Any:
    name, path = found[1], found[2]
    reply = answers.get(name)
    value: Any = reply.body if reply is not None and reply.status < 400 else None
    try:
        for step in STEP.finditer(path):
            value = value[step[1]] if step[1] is not None else value[int(step[2])]
    except (KeyError, IndexError, TypeError):
        message = f"Invalid reference specified. No value for {name}.{path} found in {name}"
        raise ApiError(HALTED, message) from None
    return value


def _rolled_back(requests: list[dict[str, Any]], answers: dict[str, Answer]) -> dict[str, Answer]:
    halted = Answer(400, ApiError(HALTED, ROLLED_BACK).body())
    failed = {name: reply for name, reply in answers.items() if _failed(reply)}
    names = [request["referenceId"] for request in requests]
    return {name: failed.get(name, halted) for name in names}
