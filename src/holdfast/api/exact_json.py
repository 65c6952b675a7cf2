"""Parse JSON exactly. A value that Python or the database can't represent exactly is rejected, with
a JSON Pointer to it."""

from __future__ import annotations

import json
import math
import re
import threading
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from holdfast.api.limits import DEPTH_MAX
from holdfast.domain.limits import INTEGER_MAX, INTEGER_MIN
from holdfast.domain.texts import UNSTORABLE

_INTEGER_CHARS_MAX: Final = len(str(INTEGER_MIN))
_EXACT_CHARS_MAX: Final = 15  # a double represents every decimal number with this many digits
_ESCAPED: Final = re.compile(rb"\\u(0000|[dD][89a-fA-F])")
_TOO_DEEP: Final = f"the value is nested more than {DEPTH_MAX} levels deep"

# The path to a value. Only a bad value gets a pointer: a name may be as long as the body.
Path = tuple[str | int, ...]


class BadJson(Exception):
    """`pointer` points to the bad value; it is None if the text is not JSON at all."""

    def __init__(self, reason: str, pointer: str | None = None) -> None:
        super().__init__(reason)
        self.pointer = pointer


class _Trap:
    """Stands in for a value that can't be represented, until its position is known."""

    def __init__(self, reason: str) -> None:
        self.reason = reason


def parse(data: bytes) -> Any:
    """Parse a JSON text in UTF-8, or raise BadJson."""
    _PARSER.found_trap = False
    try:
        value = _PARSER.decode(data.decode())
    except UnicodeDecodeError as error:
        raise BadJson(f"invalid UTF-8 at byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise BadJson(f"{error.msg} at line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise BadJson(_TOO_DEEP, "") from None
    if data.count(b"{") + data.count(b"[") > DEPTH_MAX:
        _check_depth(value)
    if _PARSER.found_trap or _ESCAPED.search(data):
        for path, reason in _problems(value):
            raise BadJson(reason, pointer_to(*path))
    return value


class _Parser(threading.local):
    """One per thread, because creating one takes longer than parsing a small text."""

    def __init__(self) -> None:
        self.found_trap = False
        self.decode = json.JSONDecoder(
            object_pairs_hook=self._object,
            parse_float=self._float,
            parse_int=self._integer,
            parse_constant=self._constant,
        ).decode

    def _trap(self, reason: str) -> _Trap:
        self.found_trap = True
        return _Trap(reason)

    def _object(self, pairs: list[tuple[str, Any]]) -> Any:
        made = dict(pairs)
        if len(made) == len(pairs):
            return made
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                break
            seen.add(name)
        return self._trap(f"the name {_shown(repr(name))} appears twice in this object")

    def _float(self, text: str) -> Any:
        number = float(text)
        if math.isinf(number):
            return self._trap(f"{_shown(text)} is out of range for a double")
        if (len(text) > _EXACT_CHARS_MAX or number == 0.0) and not _is_exact(text, number):
            return self._trap(
                f"a double can't represent {_shown(text)} exactly; send it as a string"
            )
        return number

    def _integer(self, text: str) -> Any:
        if len(text) <= _INTEGER_CHARS_MAX and INTEGER_MIN <= (number := int(text)) <= INTEGER_MAX:
            return number if text != "-0" else self._trap("-0 is not an integer; send 0 or -0.0")
        return self._trap(f"{_shown(text)} does not fit in 64 bits; send it as a string")

    def _constant(self, text: str) -> Any:
        return self._trap(f"{text} is not JSON")


_PARSER: Final = _Parser()


def _is_exact(text: str, number: float) -> bool:
    try:
        return Decimal(text) == Decimal(repr(number))
    except InvalidOperation:
        return False  # the exponent alone is larger than 64 bits


def pointer_to(*steps: str | int) -> str:
    """Return the JSON Pointer (RFC 6901) to a value, by the names and indexes on the way to it."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in steps)


def _check_depth(value: Any) -> None:
    level: list[Any] = [[value]]
    for _ in range(DEPTH_MAX + 1):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if type(outer) is dict else outer)
            if type(inner) is dict or type(inner) is list
        ]
        if not level:
            return
    raise BadJson(_TOO_DEEP, pointer_to(*(_path_to_deepest(value) or ())))


def _path_to_deepest(value: Any, levels: int = DEPTH_MAX, path: Path = ()) -> Path | None:
    """Find the first value that is nested too deeply."""
    if not levels:
        return path
    for step, inner in value.items() if type(value) is dict else enumerate(value):
        if type(inner) is dict or type(inner) is list:
            found = _path_to_deepest(inner, levels - 1, (*path, step))
            if found is not None:
                return found
    return None


def _problems(value: Any, path: Path = ()) -> Iterator[tuple[Path, str]]:
    match value:
        case _Trap():
            yield path, value.reason
        case str() if found := UNSTORABLE.search(value):
            what = "the character U+0000" if found[0] == "\0" else "an unpaired surrogate"
            yield path, f"the text contains {what}, which can't be stored"
        case dict():
            for name, inner in value.items():
                if UNSTORABLE.search(name):
                    yield path, "a member name contains a character that can't be stored"
                else:
                    yield from _problems(inner, (*path, name))
        case list():
            for index, inner in enumerate(value):
                yield from _problems(inner, (*path, index))


def _shown(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:37]}..."
