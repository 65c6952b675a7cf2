"""A job function: the handler, its options, and the ways to enqueue it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import WRAPPER_ASSIGNMENTS
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    Protocol,
    TypedDict,
    overload,
)
from uuid import UUID

import msgspec

from holdfast.context import Context, current_context
from holdfast.domain import codec
from holdfast.domain.breakers import Breaker
from holdfast.domain.errors import BadArguments, ConfigurationError
from holdfast.domain.job import Job, NewJob
from holdfast.domain.limits import (
    ATTEMPTS_MAX,
    DELAY_SECONDS_MAX,
    INTEGER_MAX,
    PRIORITY_MAX,
    PRIORITY_MIN,
    TAGS_MAX,
)
from holdfast.domain.retry import Retry
from holdfast.domain.signature import Signature
from holdfast.domain.times import check_time

if TYPE_CHECKING:
    from holdfast.app import Holdfast

P = ParamSpec("P")
TIMEOUT_SECONDS_MIN = 0.001


class JobOptions(TypedDict, total=False):
    """What `@hf.job(...)` takes."""

    name: str  # the function's own name unless given
    aliases: Sequence[str]  # names under which older jobs may still wait
    queue: str
    priority: int
    retry: Retry | Callable[[], Retry]
    timeout_seconds: float
    executor: str  # "process": in a child process, which can be killed
    memory_bytes_max: int  # for executor="process"
    permanent: Sequence[type[BaseException] | str]  # exception types and error codes
    transient: Sequence[type[BaseException] | str]
    expires_in_seconds: float
    tags: Sequence[str]
    breaker: Breaker | str | Callable[..., str | None]  # what it depends on


@dataclass(frozen=True, slots=True)
class Definition:
    """What the worker has to know of a job function."""

    name: str
    aliases: tuple[str, ...]
    function: Callable[..., Any]
    signature: Signature
    retry: Retry
    timeout_seconds: float | None = None
    executor: str | None = None
    memory_bytes_max: int | None = None
    permanent: tuple[type[BaseException] | str, ...] = ()
    transient: tuple[type[BaseException] | str, ...] = ()
    breaker: Breaker | None = None
    queue: str = "default"  # unless a call names another

    def breaker_key(self, arguments: bytes) -> str | None:
        """The key of what a job with these arguments depends on."""
        if self.breaker is None:
            return None
        if isinstance(self.breaker.key, str):
            return self.breaker.key
        values = {**self.signature.defaults, **self.signature.load(arguments)}
        try:
            key = self.breaker.key(**values)
        except Exception as error:
            raise BadArguments(
                f"{self.name}: the function for the breaker's key raised"
                f" {type(error).__name__}: {error}"
            ) from error
        if key is not None:
            codec.check_name("breaker's key", key)
        return key


@dataclass(frozen=True, slots=True)
class Options:
    """What a job is enqueued with; `resize.options(...)` changes some for one call."""

    queue: str = "default"
    priority: int = 0
    max_attempts: int | None = None
    delay_seconds: float = 0.0
    run_at: datetime | None = None
    expires_in_seconds: float | None = None
    tenant: str | None = None
    correlation_id: str | None = None
    tags: tuple[str, ...] = ()
    idempotency_key: str | None = None
    id: UUID | None = None

    def __post_init__(self) -> None:
        codec.check_name("queue", self.queue)
        for kind in ("tenant", "correlation_id", "idempotency_key"):
            if (value := getattr(self, kind)) is not None:
                codec.check_name(kind, value)
        if isinstance(self.tags, str):
            raise BadArguments(f"tags must be a list of strings, not the string {self.tags!r}")
        object.__setattr__(self, "tags", tuple(self.tags))
        if len(self.tags) > TAGS_MAX:
            raise BadArguments(f"{len(self.tags)} tags are more than {TAGS_MAX}")
        for tag in self.tags:
            codec.check_name("tag", tag)
        _check_range("priority", self.priority, PRIORITY_MIN, PRIORITY_MAX, int)
        _check_range("delay_seconds", self.delay_seconds, 0, DELAY_SECONDS_MAX)
        if self.max_attempts is not None:
            _check_range("max_attempts", self.max_attempts, 1, ATTEMPTS_MAX, int)
        if self.expires_in_seconds is not None:
            _check_range("expires_in_seconds", self.expires_in_seconds, 0, DELAY_SECONDS_MAX)
        if not isinstance(self.id, UUID | None):
            raise BadArguments(f"id must be a UUID, not {self.id!r}")
        if self.run_at is not None:
            check_time("run_at", self.run_at)
        if self.run_at is not None and self.delay_seconds:
            raise BadArguments("give run_at or delay_seconds, not both")


class Call(msgspec.Struct, frozen=True):
    """A job function with arguments, for `hf.enqueue_many`.

    Inside of a handler the new job belongs to the tenant and the request of the handler's job.
    """

    definition: Definition
    options: Options
    arguments: bytes
    breaker: str | None = None

    def new_job(self, job_id: UUID, keys_kept_seconds: float, trace: str | None = None) -> NewJob:
        chosen = self.options
        context = current_context.get()
        keyed = chosen.idempotency_key is not None
        name = self.definition.name
        return NewJob(
            id=chosen.id or job_id,
            id_is_chosen=chosen.id is not None,
            name=name,
            arguments=self.arguments,
            queue=chosen.queue,
            priority=chosen.priority,
            max_attempts=chosen.max_attempts or self.definition.retry.max_attempts,
            delay_seconds=chosen.delay_seconds,
            run_at=chosen.run_at,
            expires_in_seconds=chosen.expires_in_seconds,
            tenant=chosen.tenant or (context.tenant if context else None),
            correlation_id=chosen.correlation_id or (context.correlation_id if context else None),
            tags=chosen.tags,
            idempotency_key=chosen.idempotency_key,
            body_hash=codec.body_hash(name, self.arguments) if keyed else None,
            key_kept_seconds=keys_kept_seconds,
            trace=trace,
            breaker=self.breaker,
        )


@dataclass(frozen=True, repr=False)
class JobFunction(Generic[P]):
    """A function that can be enqueued; calling it runs it here and now, as any function.

    It has the handler's name, docstring and signature.
    """

    app: Holdfast
    definition: Definition
    defaults: Options = field(default_factory=Options)
    connection: Any = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        function = self.definition.function
        names = (name for name in WRAPPER_ASSIGNMENTS if hasattr(function, name))
        self.__dict__.update({name: getattr(function, name) for name in names})
        self.__dict__["__wrapped__"] = function

    def __repr__(self) -> str:
        return f"<job {self.name}{inspect.signature(self)}>"

    @property
    def name(self) -> str:
        return self.definition.name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.definition.function(*args, **kwargs)

    def options(
        self,
        *,
        queue: str | None = None,
        priority: int | None = None,
        max_attempts: int | None = None,
        delay_seconds: float | None = None,
        run_at: datetime | None = None,
        expires_in_seconds: float | None = None,
        tenant: str | None = None,
        correlation_id: str | None = None,
        tags: Sequence[str] | None = None,
        idempotency_key: str | None = None,
        id: UUID | None = None,
        connection: Any = None,
    ) -> JobFunction[P]:
        """The same function, enqueued with these options.

        `connection` is one of the caller's own: the job is recorded in its open transaction, and
        committed with that or not at all.
        """
        given = {
            "queue": queue,
            "priority": priority,
            "max_attempts": max_attempts,
            "delay_seconds": delay_seconds,
            "run_at": run_at,
            "expires_in_seconds": expires_in_seconds,
            "tenant": tenant,
            "correlation_id": correlation_id,
            "tags": tags,
            "idempotency_key": idempotency_key,
            "id": id,
        }
        changed: dict[str, Any] = {
            name: value for name, value in given.items() if value is not None
        }
        return replace(
            self,
            defaults=replace(self.defaults, **changed),
            connection=self.connection if connection is None else connection,
        )

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call:
        """Check the arguments and hold them, for `hf.enqueue_many`."""
        if self.connection is not None:
            raise BadArguments("a call has no connection: hf.enqueue_many(calls, connection=...)")
        return self._call(*args, **kwargs)

    def _call(self, *args: P.args, **kwargs: P.kwargs) -> Call:
        arguments = self.definition.signature.bind(
            args, kwargs, bytes_max=self.app.settings.payload_bytes_max
        )
        breaker = self.definition.breaker_key(arguments)
        return Call(self.definition, self.defaults, arguments, breaker)

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job:
        """Record the job; when this returns, it will not be lost."""
        calls = [self._call(*args, **kwargs)]
        (job,) = await self.app.enqueue_many(calls, connection=self.connection)
        return job

    def enqueue_sync(self, *args: P.args, **kwargs: P.kwargs) -> Job:
        """`enqueue` for code without an event loop."""
        calls = [self._call(*args, **kwargs)]
        (job,) = self.app.enqueue_many_sync(calls, connection=self.connection)
        return job


class JobDecorator(Protocol):
    """Turns a handler into a job function that takes the handler's own arguments."""

    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], Any], /) -> JobFunction[P]: ...

    @overload
    def __call__(self, function: Callable[P, Any], /) -> JobFunction[P]: ...


def define(
    function: Callable[..., Any], options: Mapping[str, Any], default_max_attempts: int
) -> tuple[Definition, Options]:
    """Take a handler and its options apart: what the worker needs, and how it is enqueued."""
    given = dict(options)
    known = JobOptions.__annotations__
    if unknown := given.keys() - known.keys():
        raise ConfigurationError(
            f"@hf.job has no option {min(unknown)!r}; there are: {', '.join(known)}"
        )
    timeout_seconds = given.pop("timeout_seconds", None)
    if timeout_seconds is not None:
        _check_range("timeout_seconds", timeout_seconds, TIMEOUT_SECONDS_MIN, DELAY_SECONDS_MAX)
    name = given.pop("name", None) or getattr(function, "__name__", type(function).__name__)
    signature = Signature.of(function, name)
    executor, memory_bytes_max = _executor(given, signature)
    definition = Definition(
        name=name,
        aliases=_listed("aliases", given, str),
        function=function,
        signature=signature,
        retry=_make_retry(given.pop("retry", None), default_max_attempts),
        timeout_seconds=timeout_seconds,
        executor=executor,
        memory_bytes_max=memory_bytes_max,
        permanent=_listed("permanent", given, str, type),
        transient=_listed("transient", given, str, type),
        breaker=_make_breaker(given.pop("breaker", None), signature),
        queue=given.get("queue", "default"),
    )
    return definition, Options(**given)


def _executor(given: dict[str, Any], signature: Signature) -> tuple[str | None, int | None]:
    """Take `executor` and `memory_bytes_max` out of the options, if they fit together."""
    executor = given.pop("executor", None)
    memory_bytes_max = given.pop("memory_bytes_max", None)
    if executor not in (None, "process"):
        raise ConfigurationError(f'executor must be "process" or left out, not {executor!r}')
    if executor == "process" and signature.is_async:
        raise ConfigurationError(
            f"{signature.name}: an async function runs on the worker's event loop; only a plain"
            ' one can have executor="process"'
        )
    if memory_bytes_max is not None:
        if executor is None:
            raise ConfigurationError('memory_bytes_max needs executor="process"')
        _check_range("memory_bytes_max", memory_bytes_max, 1, INTEGER_MAX, int)
    return executor, memory_bytes_max


def _make_breaker(given: object, signature: Signature) -> Breaker | None:
    """Accept a key, or a function that answers one, as well as a Breaker."""
    if given is None:
        return None
    if isinstance(given, Breaker):
        breaker = given
    elif isinstance(given, str) or callable(given):
        breaker = Breaker(given)
    else:
        raise ConfigurationError(f"breaker must be a key or a Breaker, not {given!r}")
    if not isinstance(breaker.key, str):
        _check_takes_arguments(breaker.key, signature)
    return breaker


def _check_takes_arguments(key: Callable[..., str | None], signature: Signature) -> None:
    try:
        inspect.signature(key).bind(**dict.fromkeys(signature.parameters))
    except TypeError as error:
        raise ConfigurationError(
            f"{signature.name}: the function for the breaker's key is called with the handler's"
            f" arguments by name ({', '.join(signature.parameters)}), and can't be: {error}"
        ) from None


def _listed(name: str, given: dict[str, Any], *kinds: type) -> tuple[Any, ...]:
    """Take a list out of the options; a lone string would be taken for a list of its letters."""
    value = given.pop(name, ())
    if not isinstance(value, list | tuple | set | frozenset) or not all(
        isinstance(entry, kinds) for entry in value
    ):
        expected = " and ".join({str: "strings", type: "exception types"}[kind] for kind in kinds)
        raise ConfigurationError(f"{name} must be a list of {expected}, not {value!r}")
    return tuple(value)


def _check_range(
    name: str, value: object, least: float, most: float, kind: Any = int | float
) -> None:
    if not isinstance(value, kind) or not least <= value <= most:
        raise BadArguments(f"{name} must be {least} to {most}, not {value!r}")


def _make_retry(retry: Retry | Callable[[], Retry] | None, max_attempts: int) -> Retry:
    """Accept `Retry.none` as well as `Retry.none()`."""
    if retry is None:
        return Retry.exponential(max_attempts=max_attempts)
    made: object = retry() if callable(retry) else retry
    if not isinstance(made, Retry):
        raise ConfigurationError(f"retry must be a Retry, not {made!r}")
    return made
