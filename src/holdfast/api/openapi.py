"""What the OpenAPI document says about a route: scope, body, responses, problems and examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final, Literal

import msgspec

from holdfast.api.examples import EXAMPLES
from holdfast.api.limits import IDEMPOTENCY_KEY_CHARS_MAX
from holdfast.api.problems import KINDS, MEDIA_TYPE, ProblemDetails

REFERENCE: Final = "#/components/schemas/{name}"
SCOPE: Final = "x-scope"
ACROSS: Final = "x-across-tenants"
PUBLIC: Final = "public"  # the scope of routes that need no key
ANY: Final = "any"  # the scope of routes that any key may call

_ALWAYS: Final = ("bad-request", "key-missing", "not-allowed", "too-many-requests")
_WITH_DATABASE: Final = ("database-unavailable", "not-in-this-store", "internal-error")
_WITH_BODY: Final = ("bad-json", "too-slow", "too-large", "wrong-media-type")
_WITH_IDEMPOTENCY: Final = {
    "optional": ("request-in-flight", "idempotency-conflict"),
    "required": ("request-in-flight", "idempotency-conflict", "idempotency-key-missing"),
}
_IDEMPOTENCY_HEADERS: Final = {
    "Idempotency-Replayed": {
        "description": "`true` if this is the stored response to an earlier request",
        "schema": {"type": "string", "const": "true"},
    },
    "Idempotency-Kept-Seconds": {
        "description": "How long the key and this response are stored",
        "schema": {"type": "integer"},
    },
}

_shown: dict[Any, None] = {ProblemDetails: None}  # every type in the document, in order
_queries: dict[Any, None] = {}  # every type whose fields are parameters


def describes(
    scope: str,
    answers: Mapping[int, Any],
    problems: Sequence[str] = (),
    *,
    body: Any = None,
    body_required: bool = True,
    query: Any = None,
    headers: Mapping[str, str] | None = None,
    across: bool = False,
    media_type: str = "application/json",
    idempotency: Literal["required", "optional"] | None = None,
) -> dict[str, Any]:
    """Return the keyword arguments of a route: `@router.get("", **describes("read", {200: Job}))`.

    `answers` maps each status to the type of its body, or to None. `problems` are codes of
    `problems.KINDS`, in addition to those that every route may return. `query` is the struct that
    `queries.read_query` reads. `headers` maps response headers to descriptions. With `across`, the
    key must see all tenants. `idempotency` documents the Idempotency-Key header, for routes that
    use `idempotency.idempotent`.
    """
    codes = [*problems]
    if scope != PUBLIC:
        codes += [*_ALWAYS, *_WITH_DATABASE]
    if body is not None:
        codes += _WITH_BODY
    if idempotency is not None:
        codes += _WITH_IDEMPOTENCY[idempotency]
    responses: dict[int | str, dict[str, Any]] = {
        status: _answer(status, kind, media_type) for status, kind in answers.items()
    }
    for status in sorted({KINDS[code].status for code in codes}):
        responses[status] = _problem([code for code in codes if KINDS[code].status == status])
    extra: dict[str, Any] = {SCOPE: scope}
    if scope == PUBLIC:
        extra["security"] = []
    if across:
        extra[ACROSS] = True
    if body is not None:
        content = _content("application/json", body)
        extra["requestBody"] = {"required": body_required, "content": content}
    described = {name: _header(text) for name, text in (headers or {}).items()}
    extra["parameters"] = [] if query is None else _parameters(query)
    if idempotency is not None:
        extra["parameters"] += [_idempotency_key(required=idempotency == "required")]
        described |= _IDEMPOTENCY_HEADERS
    for status in answers if described else ():
        responses[status]["headers"] = described
    return {
        "status_code": next(iter(answers)),
        "responses": responses,
        "openapi_extra": extra,
        "response_model": None,
    }


def components() -> dict[str, Any]:
    """The schemas of all types that routes name."""
    types = [*_shown, *_queries]
    _, schemas = msgspec.json.schema_components(types, ref_template=REFERENCE)
    queries = {each.__name__ for each in _queries}
    return {name: schema for name, schema in schemas.items() if name not in queries}


def _parameters(query: Any) -> list[dict[str, Any]]:
    _queries[query] = None
    _, schemas = msgspec.json.schema_components([query], ref_template=REFERENCE)
    described = schemas[query.__name__]
    return [
        {
            "name": name,
            "in": "query",
            "required": name in described.get("required", ()),
            **_parameter(schema),
        }
        for name, schema in described["properties"].items()
    ]


def _parameter(schema: dict[str, Any]) -> dict[str, Any]:
    """Describe a parameter, which is absent rather than null."""
    given = {name: value for name, value in schema.items() if value is not None}
    if "anyOf" in given:
        (only,) = (each for each in given.pop("anyOf") if each != {"type": "null"})
        given |= only
    described = {name: given.pop(name) for name in ("description",) if name in given}
    if examples := given.pop("examples", None):
        described["example"] = examples[0]
    return described | {"schema": given}


def _header(text: str) -> dict[str, Any]:
    return {"description": text, "schema": {"type": "string"}}


def _idempotency_key(*, required: bool) -> dict[str, Any]:
    return {
        "name": "Idempotency-Key",
        "in": "header",
        "required": required,
        "description": "A new random string for each request. If you don't get a response, send the"
        " request again with the same key: the work is done once.",
        "schema": {"type": "string", "minLength": 1, "maxLength": IDEMPOTENCY_KEY_CHARS_MAX},
        "example": '"8e03978e-40d5-43dd-bc93-6894a57f9324"',
    }


def _answer(status: int, kind: Any, media_type: str) -> dict[str, Any]:
    description = {201: "Created", 202: "Accepted", 204: "No content"}.get(status, "OK")
    if kind is None:
        return {"description": description}
    return {"description": description, "content": _content(media_type, kind)}


def _problem(codes: Sequence[str]) -> dict[str, Any]:
    _shown[ProblemDetails] = None
    content = {"schema": schema_of(ProblemDetails), "examples": {}}
    for code in dict.fromkeys(codes):
        kind = KINDS[code]
        content["examples"][code] = {
            "value": {
                "type": f"/v1/problems/{code}",
                "title": kind.title,
                "status": kind.status,
                "detail": "What is wrong, and what to do.",
                "code": code,
            }
        }
    text = "; ".join(f"`{code}`: {KINDS[code].title}" for code in dict.fromkeys(codes))
    return {"description": text, "content": {MEDIA_TYPE: content}}


def _content(media_type: str, kind: Any) -> dict[str, Any]:
    if isinstance(kind, str):  # text, described by an example
        return {media_type: {"schema": {"type": "string"}, "example": kind}}
    _shown[kind] = None
    content: dict[str, Any] = {"schema": schema_of(kind)}
    if kind in EXAMPLES:
        content["example"] = EXAMPLES[kind]
    return {media_type: content}


@cache
def schema_of(kind: Any) -> dict[str, Any]:
    (schema,), _ = msgspec.json.schema_components([kind], ref_template=REFERENCE)
    return schema
