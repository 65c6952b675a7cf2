"""Regenerate docs/reference/python.md from the docstrings, and http.md: `make reference`."""

from __future__ import annotations

import enum
import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import holdfast
import holdfast.servicebus_local
import holdfast.testing
import holdfast.webhooks
from holdfast.operations import (
    audit,
    breakers,
    bulk,
    dead,
    jobs,
    keys,
    messages,
    queues,
    roles,
    samples,
    secrets,
    workers,
)
from holdfast.runtime.seam import Seam
from scripts import http_reference

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "python.md"
LINE_MAX = 100
LONGEST_NAME = 30
TWIN = "_sync"
# Classes that users make objects of by calling them.
MADE = ("Holdfast", "LocalServiceBus", "VirtualTime", "Webhooks")
FIELD = re.compile(
    r"^    (?P<name>\w+): (?P<type>.+?)(?: = (?P<default>.+?))?(?:  # (?P<note>.+))?$"
)
QUOTED = re.compile(r"(?P<before>: |-> )'(?P<annotation>[^']*)'")

INTRODUCTION = """\
# Python API

Every public name, with its docstring, written from the code by `make reference`. What is not on
this page is internal and may change without notice.

Where it says *Also `..._sync`*, the method has a twin for code without an event loop:
`hf.get_sync(job_id)` does what `await hf.get(job_id)` does."""


@dataclass(frozen=True)
class Section:
    """Some names of a module."""

    title: str
    module: ModuleType
    names: tuple[str, ...]
    text: str


SECTIONS = (
    Section(
        "The app",
        holdfast,
        ("Holdfast", "JobFunction", "Tenant", "JobSchemas", "Tables", "Statements"),
        "Create one `Holdfast` object per process, and define your jobs on it.",
    ),
    Section(
        "In handlers",
        holdfast,
        ("Context", "Judgment", "Retry", "Breaker", "CallNext", "LogFilter", "SweepContext"),
        "What a handler sees of its job, and the policies in `@hf.job(...)`.",
    ),
    Section(
        "What you read",
        holdfast,
        (
            "Job", "State", "Attempt", "Lease", "Filter", "Page", "Count", "ErrorGroup",
            "GroupState", "GroupFilter", "GroupOrder", "GroupPage", "GroupCounts", "GroupJob",
            "GroupJobs", "TenantJobs", "ErrorGroups", "QueueStatus",
            "BreakerStatus", "WorkerStatus", "Why", "Reason", "Choice", "Progress", "WorkerReport",
            "Examination", "Check", "Finding", "Severity", "Overview",
            "CappedCounts", "BulkChange", "BulkAction", "BulkState", "BulkCount", "BulkPage", "Key",
            "NewKey", "AuditEntry", "AuditFilter", "AuditPage", "EncryptedValue", "Encrypted",
            "Samples", "QueueSamples", "Sample",
            "SecretCount", "Reencrypted", "Installation", "InstalledRoles", "RoleDifference",
            "MessageStatus", "Repair", "Replayed",
        ),
        "The records that methods return and take. They can't be changed.",
    ),
)  # fmt: skip
OPERATIONS = {
    "hf.jobs": jobs.Jobs,
    "hf.dead": dead.Dead,
    "hf.queues": queues.Queues,
    "hf.breakers": breakers.Breakers,
    "hf.workers": workers.Workers,
    "hf.messages": messages.Messages,
    "hf.bulk": bulk.Bulk,
    "hf.samples": samples.SampleReader,
    "hf.keys": keys.Keys,
    "hf.roles": roles.Roles,
    "hf.secrets": secrets.Secrets,
    "hf.audit": audit.Audit,
}


def page() -> str:
    parts = [INTRODUCTION]
    for section in SECTIONS:
        parts += [f"## {section.title}", section.text]
        for name in section.names:
            if name in section.module.__all__:
                parts += describe(f"`{name}`", getattr(section.module, name))
    parts += ["## Operations", "What operators do, as on the command line."]
    for receiver, kind in OPERATIONS.items():
        parts += describe(f"`{receiver}`", kind)
    parts += ["## Errors", "See [Errors](errors.md) for what to do about each."]
    for name in errors():
        parts += describe(f"`{name}`", getattr(holdfast, name))
    for module in (holdfast.testing, holdfast.webhooks, holdfast.servicebus_local):
        parts += [f"## `{module.__name__}`", paragraphs(module)]
        for name in module.__all__:
            parts += describe(f"`{module.__name__}.{name}`", getattr(module, name))
    return "\n\n".join(parts) + "\n"


def errors() -> list[str]:
    return [name for name in holdfast.__all__ if is_error(getattr(holdfast, name))]


def is_error(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Exception)


def described() -> set[str]:
    """The names of `holdfast` that the page describes."""
    return {name for section in SECTIONS for name in section.names} | set(errors())


def describe(title: str, value: Any) -> Iterator[str]:
    yield f"### {title}"
    if not isinstance(value, type):
        yield from described_value(title, value)
        return
    if value.__name__ in MADE or issubclass(value, holdfast.JobError):
        yield code(f"{value.__name__}{signature(value, returns=False)}")
    yield paragraphs(value)
    if issubclass(value, enum.Enum):
        yield "\n".join(f"- `{value.__name__}.{each.name}`: `{each.value!r}`" for each in value)
    elif rows := list(fields(value)):
        yield "\n".join(["| Field | Type | |", "|---|---|---|", *rows])
    for name, member in members(value):
        yield from described_member(value, name, member)


def described_value(title: str, value: Any) -> Iterator[str]:
    if callable(value):
        yield code(call(title.strip("`").rpartition(".")[2], value))
        yield paragraphs(value)
    else:
        yield f"A `{type(value).__name__}`."


def described_member(kind: type, name: str, member: Any) -> Iterator[str]:
    yield f"#### `{name}`"
    if isinstance(member, property):
        returned = member.fget.__annotations__["return"]
        shown = returned if isinstance(returned, str) else inspect.formatannotation(returned)
        yield code(f"{name}: {shown}")
        yield paragraphs(member)
        return
    decorator = "@classmethod\n" if isinstance(member, classmethod) else ""
    yield code(decorator + call(name, getattr(member, "__func__", member)))
    twin = f"\n\n*Also `{name}{TWIN}`.*" if hasattr(kind, name + TWIN) else ""
    yield paragraphs(member) + twin


def members(kind: type) -> Iterator[tuple[str, Any]]:
    """The public methods and properties, in the order of the source; sync twins are left out."""
    seen = set()
    for base in kind.__mro__:
        if not base.__module__.startswith("holdfast") or base is Seam:
            continue
        for name, member in vars(base).items():
            if name.startswith("_") or name in seen or not is_member(member):
                continue
            seen.add(name)
            if not (name.endswith(TWIN) and hasattr(kind, name.removesuffix(TWIN))):
                yield name, member


def is_member(value: object) -> bool:
    if isinstance(value, property):
        return isinstance(value.fget, FunctionType)  # others are fields
    return isinstance(getattr(value, "__func__", value), FunctionType)


def fields(kind: type) -> Iterator[str]:
    """The annotated fields of a record, with the comments beside them."""
    for line in inspect.getsource(kind).splitlines():
        match = FIELD.match(line)
        if match is None or match["name"].startswith("_"):
            continue
        if match["type"].startswith("Noun["):
            continue  # has a section of its own, such as `hf.jobs`
        annotation = match["type"].replace("|", "\\|")
        yield f"| `{match['name']}` | `{annotation}` | {match['note'] or ''} |"


def call(name: str, function: Callable[..., Any]) -> str:
    inner = inspect.unwrap(function)
    prefix = "await " if inspect.iscoroutinefunction(inner) else ""
    if inner is not function:  # a generator, wrapped as a context manager
        prefix = "async with " if inspect.isasyncgenfunction(inner) else "with "
    return f"{prefix}{name}{signature(inner)}"


def signature(function: Callable[..., Any], *, returns: bool = True) -> str:
    found = inspect.signature(function)
    kept = [each for each in found.parameters.values() if each.name not in ("self", "cls", "seam")]
    returned = found.return_annotation if returns else found.empty
    short = without_quotes(str(found.replace(parameters=kept, return_annotation=returned)))
    if len(short) < LINE_MAX - LONGEST_NAME:
        return short
    lines = "".join(f"    {each},\n" for each in parameter_lines(kept))
    return f"(\n{lines})" + ("" if returned is found.empty else f" -> {returned}")


def parameter_lines(parameters: list[inspect.Parameter]) -> Iterator[str]:
    kinds = [each.kind for each in parameters]
    for index, each in enumerate(parameters):
        before = kinds[:index]
        if each.kind is each.KEYWORD_ONLY and not {each.kind, each.VAR_POSITIONAL} & set(before):
            yield "*"
        yield shown_parameter(each)
        if each.kind is each.POSITIONAL_ONLY and each.kind not in kinds[index + 1 :]:
            yield "/"


def shown_parameter(parameter: inspect.Parameter) -> str:
    shown = without_quotes(str(parameter))
    return shown if len(shown) < LINE_MAX - len("    ,") else f"{shown.partition(' = ')[0]} = ..."


def without_quotes(text: str) -> str:
    """Annotations as they are in the source; defaults that are strings keep their quotes."""
    return QUOTED.sub(r"\g<before>\g<annotation>", text)


def paragraphs(value: Any) -> str:
    """The docstring, without those that dataclasses make of their fields."""
    text = inspect.cleandoc(value.__doc__ or "")
    return "" if text.startswith(f"{getattr(value, '__name__', '')}(") else text


def code(text: str) -> str:
    return f"```py\n{text}\n```"


def main() -> None:
    PAGE.write_text(page(), encoding="utf-8")
    http_reference.PAGE.write_text(http_reference.page(), encoding="utf-8")


if __name__ == "__main__":
    main()
