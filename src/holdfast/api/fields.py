"""Field types shared by bodies, queries and paths, with the engine's limits."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import Path
from msgspec import Meta
from pydantic import AfterValidator
from starlette.convertors import Convertor, register_url_convertor

from holdfast.api.limits import REQUEST_ID_CHARS_MAX, WORKER_CHARS_MAX
from holdfast.domain.errors import HoldfastError
from holdfast.domain.limits import (
    ATTEMPTS_MAX,
    DELAY_SECONDS_MAX,
    KEY_CHARS_MAX,
    NAME_CHARS_MAX,
    PRIORITY_MAX,
    PRIORITY_MIN,
    TAG_CHARS_MAX,
    TAGS_MAX,
)
from holdfast.domain.texts import check_name

_NAMEABLE: Final = r"[^\u0000-\u001f\u007f-\u009f\u2028\u2029]+"
# Python's `$` also matches before a line feed at the end.
_PATTERN: Final = rf"^{_NAMEABLE}$(?!\n)"


class _Anything(Convertor[str]):
    """Starlette's own `path` doesn't match line feeds, so such paths get an unexplained 404."""

    regex = r"[\s\S]*"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("name", _Anything())  # for paths like `/{queue:name}/pause`


def _name(chars_max: int, description: str | None = None) -> Meta:
    return Meta(
        min_length=1,
        max_length=chars_max,
        pattern=_PATTERN,
        description=description,
    )


def _check(kind: str) -> AfterValidator:
    def check(value: str) -> str:
        try:
            check_name(kind, value)
        except HoldfastError as error:
            raise ValueError(str(error)) from None
        return value

    return AfterValidator(check)


def _in_path() -> Any:
    return Path(min_length=1, max_length=NAME_CHARS_MAX, json_schema_extra={"pattern": _PATTERN})


Name = Annotated[str, _name(NAME_CHARS_MAX)]
Tag = Annotated[str, _name(TAG_CHARS_MAX)]
Tags = Annotated[list[Tag], Meta(max_length=TAGS_MAX)]
IdempotencyKey = Annotated[str, _name(KEY_CHARS_MAX)]
Because = Annotated[str, _name(NAME_CHARS_MAX, "The reason, for anyone who looks at this later.")]
RequestId = Annotated[
    str,
    _name(REQUEST_ID_CHARS_MAX, "To repeat a request whose response was lost, send the same ID."),
]
WorkerName = Annotated[
    str, _name(WORKER_CHARS_MAX, "A name for people to read. Default: the name of the key.")
]
Priority = Annotated[int, Meta(ge=PRIORITY_MIN, le=PRIORITY_MAX, description="Lower runs first.")]
Attempts = Annotated[int, Meta(ge=1, le=ATTEMPTS_MAX)]
Seconds = Annotated[float, Meta(ge=0, le=DELAY_SECONDS_MAX)]

QueueInPath = Annotated[str, _in_path(), _check("queue")]
BreakerInPath = Annotated[str, _in_path(), _check("breaker's key")]
JobNameInPath = Annotated[str, _in_path(), _check("job name")]
