"""Pydantic's types as arguments and results. Pydantic is never imported here: whoever has one of
its types has imported it.

Values are stored by the names of their fields, without computed fields, and must be the same when
they are loaded again. So it does not matter whether a model reads and writes under other aliases.
"""

from __future__ import annotations

import dataclasses
import sys
import typing
from collections.abc import Collection, Iterator, Mapping, Set
from contextlib import suppress
from typing import Any, Final, Protocol

import msgspec

from holdfast.domain.codec import Results
from holdfast.domain.errors import ConfigurationError, UnstorableValue

_ENCODER: Final = msgspec.json.Encoder()
_PACKAGES: Final = frozenset({"annotated_types", "pydantic", "pydantic_core"})
_MARKS: Final = ("__get_pydantic_core_schema__", "__pydantic_core_schema__")
_WORDS: Final = {"missing": "is missing", "extra_forbidden": "is not a field of the model"}
_VERSION_MIN: Final = (2, 11)  # the first that loads models by name


class Misfit(Exception):
    """A value does not fit its type. `place` is where, like `.lines[0].price`."""

    def __init__(self, path: tuple[str | int, ...], problem: str) -> None:
        self.place = "".join(map(_step, path))
        super().__init__(f"{self.place}: {problem}")
        self.path = path
        self.problem = problem


class Adapter(Protocol):
    """What we use of `pydantic.TypeAdapter`."""

    def validate_python(self, value: Any, /) -> Any: ...
    def validate_json(self, data: bytes, /, *, by_alias: bool, by_name: bool) -> Any: ...
    def dump_python(
        self, value: Any, /, *, mode: str, by_alias: bool, round_trip: bool, warnings: bool
    ) -> Any: ...
    def json_schema(self, *, by_alias: bool, ref_template: str, mode: str) -> dict[str, Any]: ...


class Model:
    """A type that contains one of Pydantic's, for one parameter or for the result."""

    def __init__(self, hint: Any) -> None:
        pydantic = sys.modules["pydantic"]
        version = tuple(map(int, pydantic.VERSION.split(".")[:2]))
        if version < _VERSION_MIN:
            raise ConfigurationError(f"it needs Pydantic 2.11 or later, not {pydantic.VERSION}")
        self._adapter: Adapter = pydantic.TypeAdapter(hint)
        self._refusal: Any = pydantic.ValidationError
        # Pydantic has no schema for what it can't read from JSON.
        self._has_sets = b'"uniqueItems":true' in _ENCODER.encode(self.schema())

    def schema(self, ref_template: str = "#/$defs/{model}") -> dict[str, Any]:
        return self._adapter.json_schema(
            by_alias=False, ref_template=ref_template, mode="validation"
        )

    def check(self, value: Any) -> Any:
        """Accept what the model accepts, like a dict, and return the value of the type."""
        return self._run(self._adapter.validate_python, value)

    def dump(self, checked: Any) -> Any:
        """Turn a value of the type into plain JSON values."""
        plain = self._run(
            self._adapter.dump_python,
            checked,
            mode="json",
            by_alias=False,
            round_trip=True,
            warnings=False,
        )
        return _with_ordered_sets(checked, plain) if self._has_sets else plain

    def load(self, data: bytes) -> Any:
        return self._run(self._adapter.validate_json, data, by_alias=False, by_name=True)

    def check_same(self, checked: Any, data: bytes) -> None:
        """Refuse a value that is not the same when it is loaded again."""
        path = _difference(checked, self.load(data), ())
        if path is not None:
            raise Misfit(
                path,
                "is not the same after being stored and loaded, for example because it is masked,"
                " excluded, an object of a subclass, or fits several types of a union",
            )

    def dump_result(self, value: Any, results: Results) -> Any:
        """Turn a result into plain JSON values, or raise UnstorableValue."""
        try:
            checked = self.check(value)
            plain = self.dump(checked)
            self.check_same(checked, results.encode(plain))
        except Misfit as misfit:
            if results.replaces:
                return value
            reason = f"${misfit.place}: {misfit.problem}"
        else:
            return plain
        raise UnstorableValue("result", reason)

    def _run(self, step: Any, value: Any, **options: Any) -> Any:
        try:
            return step(value, **options)
        except self._refusal as error:
            misfit = _explain(error)
        except Exception as error:
            # Validators and serializers of the user may raise anything.
            misfit = Misfit((), f"{type(error).__name__}: {error}")
        # Outside of the block: the error knows the value, which may be secret.
        raise misfit


def contains_model(hint: Any, seen: set[int] | None = None) -> bool:
    """Whether one of Pydantic's types is anywhere inside a type."""
    seen = set() if seen is None else seen
    if "pydantic" not in sys.modules or id(hint) in seen:
        return False
    seen.add(id(hint))
    metadata = getattr(hint, "__metadata__", ())
    return (
        any(hasattr(hint, mark) for mark in _MARKS)
        or any(type(each).__module__.partition(".")[0] in _PACKAGES for each in metadata)
        or any(contains_model(inner, seen) for inner in _inner_types(hint))
    )


def _inner_types(hint: Any) -> Iterator[Any]:
    yield from typing.get_args(hint)
    kind = typing.get_origin(hint) or hint
    if isinstance(kind, type) and hasattr(kind, "__annotations__"):
        with suppress(Exception):  # whoever loads the type says what is wrong with it
            yield from typing.get_type_hints(kind, include_extras=True).values()


def _explain(error: Any) -> Misfit:
    """Say where and why, without the value: it may be secret."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    first = found[0]
    words = first["msg"].replace("Input should be", "must be", 1).removeprefix("Value error, ")
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return Misfit(tuple(first["loc"]), _WORDS.get(first["type"], words) + more)


def _step(key: object) -> str:
    return f".{key}" if isinstance(key, str) and key.isidentifier() else f"[{key!r}]"


def _with_ordered_sets(value: Any, plain: Any) -> Any:
    """Sort what was a set: its order differs between processes, and idempotency needs one."""
    if getattr(type(value), "__pydantic_root_model__", False):
        value = value.root
    if isinstance(plain, list) and isinstance(value, Collection) and len(value) == len(plain):
        items = [_with_ordered_sets(*pair) for pair in zip(value, plain, strict=True)]
        return sorted(items, key=_ENCODER.encode) if isinstance(value, Set) else items
    if isinstance(plain, dict) and isinstance(value, Mapping) and len(value) == len(plain):
        pairs = zip(value.values(), plain.items(), strict=True)
        return {key: _with_ordered_sets(inner, item) for inner, (key, item) in pairs}
    if isinstance(plain, dict):
        return {
            key: _with_ordered_sets(getattr(value, key, None), item) for key, item in plain.items()
        }
    return plain


def _difference(one: Any, other: Any, path: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Find where two values differ, apart from private attributes."""
    if type(one) is not type(other):
        return path
    if one == other or getattr(type(one), "__eq__", None) is object.__eq__:
        return None
    pairs = _pairs(one, other)
    if pairs is None:
        return path
    found = (_difference(first, second, (*path, step)) for step, first, second in pairs)
    return next((each for each in found if each is not None), None)


def _pairs(one: Any, other: Any) -> list[tuple[Any, Any, Any]] | None:
    """What two unequal values of the same type contain; None if they have no parts in common."""
    if isinstance(one, list | tuple) and len(one) == len(other):
        return [(index, *pair) for index, pair in enumerate(zip(one, other, strict=True))]
    if isinstance(one, dict) and one.keys() == other.keys():
        return [(key, one[key], other[key]) for key in one]
    if dataclasses.is_dataclass(one):
        names = [field.name for field in dataclasses.fields(one)]
    elif (fields := getattr(type(one), "__pydantic_fields__", None)) is not None:
        names = [*fields, "__pydantic_extra__"]
    else:
        return None
    return [(name, getattr(one, name), getattr(other, name)) for name in names]
