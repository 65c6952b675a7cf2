"""/v1/names: which jobs can be enqueued, and with which arguments."""

from __future__ import annotations

import inspect
from typing import Any

import msgspec
from starlette.responses import Response

from holdfast.api.answers import answer
from holdfast.api.callers import Router
from holdfast.api.examples import EXAMPLES
from holdfast.api.fields import JobNameInPath
from holdfast.api.openapi import describes
from holdfast.api.problems import Problem
from holdfast.api.service import Service
from holdfast.app import Holdfast
from holdfast.domain.spelling import did_you_mean
from holdfast.job_function import JobFunction


class JobName(msgspec.Struct, frozen=True, kw_only=True):
    """A job that can be enqueued. `arguments` and `result` are JSON Schemas (draft 2020-12),
    derived from the signature of its handler. The rest comes from its declaration."""

    name: str
    aliases: list[str]
    description: str | None
    arguments: dict[str, Any]
    result: dict[str, Any]
    queue: str
    priority: int
    tags: list[str]
    max_attempts: int
    timeout_seconds: float | None
    expires_in_seconds: float | None
    executor: str | None
    breaker: str | None
    encrypted: bool


class JobNames(msgspec.Struct, frozen=True):
    """All jobs that can be enqueued, by name."""

    names: list[JobName]


EXAMPLES[JobName] = {
    "name": "resize",
    "aliases": [],
    "description": "Make a small copy of an image.",
    "arguments": {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "resize",
        "type": "object",
        "properties": {"image": {"type": "integer"}},
        "required": ["image"],
        "additionalProperties": False,
    },
    "result": {"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "string"},
    "queue": "images",
    "priority": 0,
    "tags": [],
    "max_attempts": 5,
    "timeout_seconds": 60.0,
    "expires_in_seconds": None,
    "executor": None,
    "breaker": None,
    "encrypted": False,
}
EXAMPLES[JobNames] = {"names": [EXAMPLES[JobName]]}


def routes(service: Service) -> Router:
    router = Router(prefix="/v1/names", tags=["Names"])
    hf = service.hf

    @router.get("", **describes("read", {200: JobNames}))
    async def list_names() -> Response:
        """List the jobs that can be enqueued, with the JSON Schemas of their arguments and
        results."""
        return answer(JobNames(all_names(hf)))

    @router.get("/{name:name}", **describes("read", {200: JobName}, ["not-found"]))
    async def get_name(name: JobNameInPath) -> Response:
        """Get a job that can be enqueued, by its name or an alias."""
        function = hf._functions.get(name)
        if function is None:
            text = f"no job is named {name!r}{did_you_mean(name, hf.names)}"
            raise Problem("not-found", text)
        return answer(described(function))

    return router


def all_names(hf: Holdfast) -> list[JobName]:
    functions = {each.name: each for each in hf._functions.values()}
    return [described(functions[name]) for name in sorted(functions)]


def described(function: JobFunction[..., Any]) -> JobName:
    definition, defaults = function._definition, function._defaults
    schemas = definition.schemas
    doc = definition.function.__doc__
    key = None if definition.breaker is None else definition.breaker.key
    return JobName(
        name=definition.name,
        aliases=list(definition.aliases),
        description=inspect.cleandoc(doc) if doc else None,
        arguments=schemas.arguments,
        result=schemas.result,
        queue=defaults.queue,
        priority=defaults.priority,
        tags=list(defaults.tags),
        max_attempts=defaults.max_attempts or definition.retry.max_attempts,
        timeout_seconds=definition.timeout_seconds,
        expires_in_seconds=defaults.expires_in_seconds,
        executor=definition.executor,
        breaker=key if isinstance(key, str) else None,
        encrypted=definition.encrypted,
    )
