"""A handler's parameters: calls are checked when they are enqueued, and loaded in the worker.

Defaults are not stored. The code that runs the job applies them, so a new default also holds for
jobs that are waiting, and JSON need not be able to hold it.
"""

from __future__ import annotations

import functools
import inspect
import re
import typing
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, Final

import msgspec

from holdfast.domain.codec import Results, encode_arguments
from holdfast.domain.errors import BadArguments, ConfigurationError, UnreadableResult
from holdfast.domain.job import Job
from holdfast.domain.models import Misfit, Model, contains_model
from holdfast.domain.storable import Walk

Handler = Callable[..., Any]

_PLACE: Final = re.compile(r" - at (?P<key>`key` in )?`\$\.?(?P<place>[^`]*)`$")
_STEP: Final = re.compile(r"\[(?P<index>\d+)\]|(?P<name>[^.\[]+)")
_ENCODER: Final = msgspec.json.Encoder()
_NAMES: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
# A plain function that wraps an async one may say so.
_AWAITED: Final = (Awaitable, Coroutine)
_UNTYPED: Final = (Any, None, type(None), typing.Never, typing.NoReturn)
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
    """The parameters of a handler, without its context, and its result.

    Pydantic loads the parameters in `models`. Those in `keyed` have dicts whose keys are no texts.
    """

    name: str
    takes_context: bool
    is_async: bool
    parameters: tuple[str, ...]
    positional: tuple[str, ...]
    required: tuple[str, ...]
    defaults: Mapping[str, Any]
    hints: Mapping[str, Any]  # "return" is that of the result
    models: Mapping[str, Model]
    keyed: frozenset[str]
    decoder: msgspec.json.Decoder[Any]
    result: Model | msgspec.json.Decoder[Any] | None

    @classmethod
    def of(cls, function: Handler, name: str | None = None) -> Signature:
        """Inspect a handler, or raise a ConfigurationError that says what to change."""
        job = name or str(getattr(function, "__name__", type(function).__name__))
        _check_callable(job, function)
        signature = inspect.signature(function)
        parameters = list(signature.parameters.values())
        hints = _resolve_hints(function, signature)
        takes_context = bool(parameters) and _is_context(parameters[0], hints)
        if takes_context:
            context = parameters.pop(0)
            if context.kind not in (context.POSITIONAL_ONLY, context.POSITIONAL_OR_KEYWORD):
                raise ConfigurationError(f"{job}: the context {context.name} must be positional")
        for parameter in parameters:
            _check_parameter(job, parameter, hints)
        hints = {name: hints[name] for name in (*(each.name for each in parameters), "return")}
        models = {
            each.name: _make_model(f"{job}: parameter {each.name}", hints[each.name])
            for each in parameters
            if contains_model(hints[each.name])
        }
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
            hints=hints,
            models=models,
            keyed=frozenset(
                each.name
                for each in parameters
                if each.name not in models and _has_other_keys(hints[each.name])
            ),
            decoder=_build_decoder(
                job, parameters, {**hints, **dict.fromkeys(models, msgspec.Raw)}
            ),
            result=_make_result(job, hints["return"]),
        )

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any], *, bytes_max: int) -> bytes:
        """Bind the arguments as a call would, check their types, and encode them."""
        values = self._bind(args, kwargs)
        checked = self._convert(values, bytes_max) if self.models or self.keyed else {}
        try:
            data = encode_arguments(values, bytes_max=bytes_max)
        except BadArguments as error:
            raise error.of(self.name) from None
        stored = self._decode(data)
        for name, value in checked.items():
            self._try(name, self.models[name].check_same, value, bytes(getattr(stored, name)))
        return data

    def _convert(self, values: dict[str, Any], bytes_max: int) -> dict[str, Any]:
        """Make plain JSON values of what only Pydantic or a walk can. Return Pydantic's values."""
        checked: dict[str, Any] = {}
        walk = Walk(nodes_max=bytes_max, with_keys=True)
        for name in self.keyed & values.keys():
            values[name] = self._try(name, walk.storable, values[name], (name,))
        for name in self.models.keys() & values.keys():
            checked[name] = self._try(name, self.models[name].check, values[name])
            values[name] = self._try(name, self.models[name].dump, checked[name])
        return checked

    def _try(self, argument: str, step: Callable[..., Any], *args: Any) -> Any:
        """Name the job and the argument in errors. A misfit is no cause: it may know a secret."""
        try:
            return step(*args)
        except BadArguments as error:
            raise error.of(self.name) from None
        except Misfit as misfit:
            raise BadArguments(
                f"{self.name}: argument {argument}{misfit.place}: {misfit.problem}",
                (argument, *misfit.path),
            ) from None

    def load(self, data: bytes) -> dict[str, Any]:
        """Decode stored arguments into the annotated types, ready for `function(ctx, **values)`.

        Unknown names are rejected: a renamed parameter must not be dropped silently.
        """
        try:
            values = msgspec.structs.asdict(self._decode(data))
            if self.models:
                self._load_models(values)
        except BadArguments:
            self.check_names(data)
            raise
        if len(self.required) == len(values):
            return values
        return {name: value for name, value in values.items() if value is not msgspec.UNSET}

    def _load_models(self, values: dict[str, Any]) -> None:
        for name, model in self.models.items():
            if values[name] is not msgspec.UNSET:
                values[name] = self._try(name, model.load, bytes(values[name]))

    def typed(self, results: Results) -> Results:
        """How this handler's result is stored."""
        if isinstance(self.result, Model):
            return replace(results, dump=self.result.dump_result)
        return results

    def load_result(self, job: Job) -> Any:
        """Turn a stored result into the annotated type, or raise UnreadableResult."""
        try:
            return self._load_result(job.result)
        except Misfit as misfit:
            reason = f"${misfit.place}: {misfit.problem}"
        except Exception as error:
            reason = str(error).replace("`", "")
        raise UnreadableResult(job, reason)

    def check_result(self, result: Any) -> None:
        """Raise a Misfit if these JSON values don't fit the annotated type."""
        try:
            self._load_result(result)
        except Misfit:
            raise
        except Exception as error:
            words, found = _words(error)
            path = _steps(found["place"]) if found else ()
            misfit = Misfit(path, words.replace("`", ""))
        else:
            return
        # Outside of the block: the error knows the value, which may be secret.
        raise misfit

    def _load_result(self, result: Any) -> Any:
        if self.result is None:
            return result
        data = _ENCODER.encode(result)
        if isinstance(self.result, Model):
            return self.result.load(data)
        return self.result.decode(data)

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
            raise _explain(error).of(self.name) from error

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
                raise BadArguments(f"{self.name}: got multiple values for argument {name}", (name,))
            if name not in self.parameters:
                raise BadArguments(f"{self.name}: got an unexpected argument {name}", (name,))
            values[name] = value
        if missing := [name for name in self.required if name not in values]:
            raise BadArguments(f"{self.name}: missing required argument {', '.join(missing)}")
        return values


def _explain(error: Exception) -> BadArguments:
    """Translate msgspec's error, which speaks of `$.width`, into the handler's terms."""
    text = str(error)
    words, found = _words(error)
    if found:
        in_key = ", in a key" if found["key"] else ""
        text = f"argument {found['place']}: {words}{in_key}"
    elif isinstance(error, msgspec.ValidationError):
        text = f"the arguments don't fit the handler: {words}"
    else:
        text = f"the arguments can't be read: {text}"
    return BadArguments(text.replace("`", ""), _steps(found["place"]) if found else ())


def _words(error: Exception) -> tuple[str, re.Match[str] | None]:
    """What is wrong, without the value, and where."""
    text = str(error)
    found = _PLACE.search(text)
    if isinstance(error.__cause__, Exception) and len(error.__cause__.args) > 1:
        # The validators of attrs add the value to their errors, and put it into their words.
        return f"refused by a validator ({type(error.__cause__).__name__})", found
    return (text[: found.start()] if found else text), found


def _steps(place: str) -> tuple[str | int, ...]:
    """The path in msgspec's words, like `lines[0].price`. It does not tell the keys of dicts."""
    known = place.partition("[...]")[0]
    return tuple(
        int(step["index"]) if step["index"] else step["name"] for step in _STEP.finditer(known)
    )


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
    if not contains_model(hints[parameter.name]):
        _check_type(f"{job}: parameter {parameter.name}", hints[parameter.name])


def _make_model(where: str, hint: Any) -> Model:
    try:
        return Model(hint)
    except Exception as error:
        # Any exception: Pydantic evaluates annotations here.
        reason = str(error).partition("\n")[0]
        raise ConfigurationError(
            f"{where}: Pydantic, which loads its type, can't read it from JSON: {reason}"
        ) from error


def _make_result(job: str, hint: Any) -> Model | msgspec.json.Decoder[Any] | None:
    """What loads the result; None if it stays as it is stored, as `ctx.set_result` may set any."""
    if hint in _UNTYPED:
        return None
    where = f"{job}: its result (annotate it with Any to get it as it is stored)"
    if contains_model(hint):
        return _make_model(where, hint)
    _check_type(where, hint)
    return msgspec.json.Decoder(hint)


def _check_type(where: str, hint: Any) -> None:
    try:
        msgspec.json.Decoder(hint)
        custom = _find_custom(hint)
    except Exception as error:
        # Any exception: annotations inside dataclasses are evaluated here.
        raise ConfigurationError(f"{where}: its type can't be stored: {error}") from error
    if custom is not None:
        name = getattr(custom, "__qualname__", custom)
        raise ConfigurationError(
            f"{where}: the type {name} can't be read from JSON; use JSON types, datetimes, UUIDs,"
            " Decimals, enums, dataclasses, attrs classes, msgspec structs or Pydantic models"
        )


def _find_custom(hint: Any) -> Any:
    """Find a class that msgspec leaves to hooks, anywhere inside a type."""
    found = (each.cls for each in _infos(hint) if isinstance(each, msgspec.inspect.CustomType))
    return next((each for each in found if each is not object), None)


def _has_other_keys(hint: Any) -> bool:
    """Whether all types are known, and a dict has keys that JSON makes texts of."""
    infos = list(_infos(hint))
    keys = [each.key_type for each in infos if isinstance(each, msgspec.inspect.DictType)]
    untyped = msgspec.inspect.AnyType | msgspec.inspect.CustomType
    return any(not isinstance(each, msgspec.inspect.StrType) for each in keys) and not any(
        isinstance(each, untyped) for each in infos
    )


def _infos(hint: Any) -> Iterator[Any]:
    """What msgspec knows of a type and of all types inside it."""
    left, seen = [msgspec.inspect.type_info(hint)], set()
    while left:
        info: Any = left.pop()
        if isinstance(info, tuple):
            left.extend(info)
        elif (
            isinstance(info, msgspec.inspect.Type | msgspec.inspect.Field) and id(info) not in seen
        ):
            seen.add(id(info))
            yield info
            left.extend(getattr(info, name) for name in info.__struct_fields__)


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


def _resolve_hints(function: Handler, signature: inspect.Signature) -> dict[str, Any]:
    """Resolve postponed annotations one by one; those that need a caller's locals become Any."""
    home = _home(function)
    annotations = {each.name: each.annotation for each in signature.parameters.values()}
    annotations["return"] = signature.return_annotation
    hints: dict[str, Any] = {}
    for name, annotation in annotations.items():
        holder = SimpleNamespace(__annotations__={name: annotation})
        try:
            resolved = typing.get_type_hints(holder, home, include_extras=True)
            hints[name] = Any if annotation is signature.empty else resolved[name]
        except Exception:
            hints[name] = Any
    if typing.get_origin(hints["return"]) in _AWAITED:
        hints["return"] = typing.get_args(hints["return"])[-1]
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
