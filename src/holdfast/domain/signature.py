"""A handler's parameters: calls are checked when they are enqueued, and loaded in the worker.

Defaults are not stored. The code that runs the job applies them, so a new default also holds for
jobs that are waiting, and JSON need not be able to hold it.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Final

import msgspec

from holdfast.domain.codec import encode_arguments
from holdfast.domain.errors import BadArguments, ConfigurationError

Handler = Callable[..., Any]

_PLACE: Final = " - at `$."
_NAMES: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_REFUSED_KINDS: Final[Mapping[Any, str]] = {
    inspect.Parameter.VAR_POSITIONAL: "takes *{}; a job takes named parameters only",
    inspect.Parameter.VAR_KEYWORD: "takes **{}; a job takes named parameters only",
    inspect.Parameter.POSITIONAL_ONLY: "takes {} by position only; arguments are stored by name",
}


class OtherArguments(BadArguments):
    """The names of the arguments don't fit the handler: another version of the code enqueued it.

    Types don't tell that, because other programs enqueue jobs too.
    """


@dataclass(frozen=True, slots=True)
class Signature:
    """The parameters of a handler, without its context."""

    name: str
    takes_context: bool
    is_async: bool
    parameters: tuple[str, ...]
    positional: tuple[str, ...]
    required: tuple[str, ...]
    defaults: Mapping[str, Any]
    decoder: msgspec.json.Decoder[Any]

    @classmethod
    def of(cls, function: Handler, name: str | None = None) -> Signature:
        """Inspect a handler, or raise a ConfigurationError that says what to change."""
        job = name or str(getattr(function, "__name__", type(function).__name__))
        _check_callable(job, function)
        parameters = list(inspect.signature(function).parameters.values())
        hints = _resolve_hints(function, parameters)
        takes_context = bool(parameters) and _is_context(parameters[0], hints)
        if takes_context:
            context = parameters.pop(0)
            if context.kind not in (context.POSITIONAL_ONLY, context.POSITIONAL_OR_KEYWORD):
                raise ConfigurationError(f"{job}: the context {context.name} must be positional")
        for parameter in parameters:
            _check_parameter(job, parameter, hints)
        return cls(
            name=job,
            takes_context=takes_context,
            is_async=_is_async(function),
            parameters=tuple(each.name for each in parameters),
            positional=tuple(
                each.name for each in parameters if each.kind is not each.KEYWORD_ONLY
            ),
            required=tuple(each.name for each in parameters if each.default is each.empty),
            defaults={
                each.name: each.default for each in parameters if each.default is not each.empty
            },
            decoder=_build_decoder(job, parameters, hints),
        )

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any], *, bytes_max: int) -> bytes:
        """Bind the arguments as a call would, check their types, and encode them."""
        values = self._bind(args, kwargs)
        try:
            data = encode_arguments(values, bytes_max=bytes_max)
        except BadArguments as error:
            raise type(error)(f"{self.name}: {error}") from None
        self._decode(data)
        return data

    def load(self, data: bytes) -> dict[str, Any]:
        """Decode stored arguments into the annotated types, ready for `function(ctx, **values)`.

        Unknown names are rejected: a renamed parameter must not be dropped silently.
        """
        try:
            values = msgspec.structs.asdict(self._decode(data))
        except BadArguments:
            self.check_names(data)
            raise
        if len(self.required) == len(values):
            return values
        return {name: value for name, value in values.items() if value is not msgspec.UNSET}

    def check_names(self, data: bytes) -> None:
        """Raise OtherArguments if the names of the stored arguments don't fit the handler."""
        try:
            stored = _NAMES.decode(data)
        except Exception:
            return  # no version stored this: `load` says why
        unknown = [repr(name) for name in stored if name not in self.parameters]
        missing = [repr(name) for name in self.required if name not in stored]
        reasons = [
            *([f"has no argument {', '.join(unknown)}"] if unknown else []),
            *([f"needs argument {', '.join(missing)}"] if missing else []),
        ]
        if reasons:
            raise OtherArguments(f"{self} {' and '.join(reasons)}")

    def __str__(self) -> str:
        shown = [f"{name}=..." if name in self.defaults else name for name in self.parameters]
        return f"{self.name}({', '.join(shown)})"

    def _decode(self, data: bytes) -> Any:
        try:
            return self.decoder.decode(data)
        except Exception as error:
            # Any exception: a dataclass of the user may check itself in __post_init__.
            raise BadArguments(f"{self.name}: {_explain(error)}") from error

    def _bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        if not kwargs and len(args) == len(self.parameters) == len(self.positional):
            return dict(zip(self.parameters, args, strict=True))
        if len(args) > len(self.positional):
            raise BadArguments(
                f"{self.name}: takes {len(self.positional)} positional arguments,"
                f" but {len(args)} were given"
            )
        values = dict(zip(self.positional, args, strict=False))
        for name, value in kwargs.items():
            if name in values:
                raise BadArguments(f"{self.name}: got multiple values for argument {name}")
            if name not in self.parameters:
                raise BadArguments(f"{self.name}: got an unexpected argument {name}")
            values[name] = value
        if missing := [name for name in self.required if name not in values]:
            raise BadArguments(f"{self.name}: missing required argument {', '.join(missing)}")
        return values


def _explain(error: Exception) -> str:
    """Translate msgspec's error, which speaks of `$.width`, into the handler's terms."""
    text = str(error)
    before, found, place = text.rpartition(_PLACE)
    if found and place.endswith("`"):
        text = f"argument {place.removesuffix('`')}: {before}"
    elif isinstance(error, msgspec.ValidationError):
        text = f"the arguments don't fit the handler: {text}"
    else:
        text = f"the arguments can't be read: {text}"
    return text.replace("`", "")


def _check_callable(job: str, function: Handler) -> None:
    if _is_unbound_method(function):
        raise ConfigurationError(
            f"{job}: a method can't be a job, because workers don't have its object; use a"
            " function or a static method"
        )
    if isinstance(function, type):
        raise ConfigurationError(f"{job}: a handler is a function, not {function!r}")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ConfigurationError(f"{job}: a handler returns its result; it can't be a generator")


def _is_unbound_method(function: Any) -> bool:
    """Whether it is defined in a class and still needs its `self` or `cls`."""
    if isinstance(function, classmethod):
        return True
    owner = getattr(function, "__qualname__", "").rpartition(".")[0]
    if not owner or owner.endswith("<locals>") or isinstance(function, type):
        return False
    return next(iter(inspect.signature(function).parameters), None) in ("self", "cls")


def _check_parameter(job: str, parameter: inspect.Parameter, hints: Mapping[str, Any]) -> None:
    if problem := _REFUSED_KINDS.get(parameter.kind):
        raise ConfigurationError(f"{job}: {problem.format(parameter.name)}")
    if _is_context(parameter, hints):
        raise ConfigurationError(f"{job}: the context {parameter.name} must come first")
    _check_type(f"{job}: parameter {parameter.name}", hints[parameter.name])


def _check_type(where: str, hint: Any) -> None:
    try:
        msgspec.json.Decoder(hint)
        custom = _find_custom(msgspec.inspect.type_info(hint), set())
    except Exception as error:
        # Any exception: annotations inside dataclasses are evaluated here.
        raise ConfigurationError(f"{where}: its type can't be stored: {error}") from error
    if custom is not None:
        name = getattr(custom, "__qualname__", custom)
        raise ConfigurationError(
            f"{where}: the type {name} can't be read from JSON;"
            " use JSON types, datetimes, UUIDs, Decimals, enums, dataclasses or msgspec structs"
        )


def _find_custom(info: Any, seen: set[int]) -> Any:
    """Find a class that msgspec leaves to hooks, anywhere inside a type."""
    if isinstance(info, msgspec.inspect.CustomType):
        return None if info.cls is object else info.cls
    if isinstance(info, tuple):
        inner = list(info)
    elif isinstance(info, msgspec.inspect.Type | msgspec.inspect.Field) and id(info) not in seen:
        seen.add(id(info))
        inner = [getattr(info, name) for name in info.__struct_fields__]
    else:
        return None
    found = (_find_custom(each, seen) for each in inner)
    return next((custom for custom in found if custom is not None), None)


def _build_decoder(
    job: str, parameters: Sequence[inspect.Parameter], hints: Mapping[str, Any]
) -> msgspec.json.Decoder[Any]:
    fields: list[Any] = [
        (each.name, hints[each.name])
        if each.default is each.empty
        else (each.name, hints[each.name], msgspec.UNSET)
        for each in parameters
    ]
    try:
        arguments = msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=True)
        return msgspec.json.Decoder(arguments)
    except Exception as error:
        raise ConfigurationError(f"{job}: its parameters can't be stored: {error}") from error


def _resolve_hints(function: Handler, parameters: Sequence[inspect.Parameter]) -> dict[str, Any]:
    """Resolve postponed annotations one by one; those that need a caller's locals become Any."""
    home = _home(function)
    hints: dict[str, Any] = {}
    for parameter in parameters:
        annotation = parameter.annotation
        if annotation is parameter.empty:
            hints[parameter.name] = Any
            continue
        holder = SimpleNamespace(__annotations__={parameter.name: annotation})
        try:
            resolved = typing.get_type_hints(holder, home, include_extras=True)
            hints[parameter.name] = resolved[parameter.name]
        except Exception:
            hints[parameter.name] = Any
    return hints


def _home(function: Handler) -> dict[str, Any]:
    """Find the globals of the function under partials, decorators, methods and callable objects."""
    inner: Any = function
    while isinstance(inner, functools.partial):
        inner = inner.func
    inner = inspect.unwrap(inner)
    if not inspect.isroutine(inner):
        inner = inner.__call__
    return getattr(inner, "__globals__", {})


def _is_context(parameter: inspect.Parameter, hints: Mapping[str, Any]) -> bool:
    if parameter.name == "ctx":
        return True
    hint = hints[parameter.name]
    if hint is Any:
        # Imported for type checkers only, the class is known by its name alone.
        return str(parameter.annotation).rpartition(".")[2] == "Context"
    kind = typing.get_origin(hint) or hint
    return isinstance(kind, type) and any(
        each.__name__ == "Context" and each.__module__.partition(".")[0] == "holdfast"
        for each in kind.__mro__
    )


def _is_async(function: Any) -> bool:
    call = function if inspect.isroutine(function) else function.__call__
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)
