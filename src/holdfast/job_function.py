"""A job function: the handler, its options, and the ways to enqueue it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import update_wrapper
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    Protocol,
    Self,
    TypedDict,
    TypeVar,
    overload,
)
from uuid import UUID

import msgspec

from holdfast.context import Context, current_context
from holdfast.domain import codec
from holdfast.domain.breakers import Breaker
from holdfast.domain.errors import BadArguments, ConfigurationError
from holdfast.domain.job import DEFAULT_TENANT, Job, NewJob
from holdfast.domain.limits import (
    ATTEMPTS_MAX,
    DELAY_SECONDS_MAX,
    INTEGER_MAX,
    PRIORITY_MAX,
    PRIORITY_MIN,
    TAGS_MAX,
)
from holdfast.domain.retry import Retry
from holdfast.domain.schemas import JobSchemas, describe
from holdfast.domain.signature import Signature
from holdfast.domain.texts import check_name, check_range
from holdfast.domain.times import check_time
from holdfast.runtime.blocking import refuse_on_loop

if TYPE_CHECKING:
    from holdfast.app import Holdfast

P = ParamSpec("P")
R = TypeVar("R", covariant=True)
TIMEOUT_SECONDS_MIN = 0.001


class JobOptions(TypedDict, total=False):
    """The options of `@hf.job(...)`."""

    name: str  # defaults to the function's name
    aliases: Sequence[str]  # old names under which jobs may still be waiting
    queue: str
    priority: int
    retry: Retry | Callable[[], Retry]
    timeout_seconds: float
    # "process" runs the handler in a child process, which can be killed. "remote" never runs it:
    # the function declares a job for workers in any language, which lease it over HTTP.
    executor: str
    memory_bytes_max: int  # for executor="process"
    permanent: Sequence[type[BaseException] | str]  # exception types and error codes
    transient: Sequence[type[BaseException] | str]
    expires_in_seconds: float
    tags: Sequence[str]
    breaker: Breaker | str | Callable[..., str | None]  # what the job depends on
    encrypted: bool  # arguments, result and progress, in the database


@dataclass(frozen=True, slots=True)
class Definition:
    """What a worker needs to know about a job function."""

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
    queue: str = "default"
    encrypted: bool = False

    @property
    def is_remote(self) -> bool:
        """Whether workers lease it over HTTP, and Python workers leave it to them."""
        return self.executor == "remote"

    @property
    def schemas(self) -> JobSchemas:
        return describe(self.signature, self.function.__doc__)

    def breaker_key(self, arguments: bytes) -> str | None:
        """The key of the breaker for a job with these arguments."""
        if self.breaker is None:
            return None
        if isinstance(self.breaker.key, str):
            return self.breaker.key
        values = {**self.signature.defaults, **self.signature.load(arguments)}
        try:
            key = self.breaker.key(**values)
        except Exception as error:
            problem = f"the breaker's key function raised {type(error).__name__}: {error}"
            raise BadArguments(f"{self.name}: {problem}") from error
        if key is not None:
            check_name("breaker's key", key)
        return key


@dataclass(frozen=True, slots=True)
class Options:
    """How a job is enqueued; `resize.options(...)` changes some of these for one call."""

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
        check_name("queue", self.queue)
        for kind in ("tenant", "correlation_id", "idempotency_key"):
            if (value := getattr(self, kind)) is not None:
                check_name(kind, value)
        if isinstance(self.tags, str):
            raise BadArguments(f"tags must be a list of strings, not the string {self.tags!r}")
        object.__setattr__(self, "tags", tuple(self.tags))
        if len(self.tags) > TAGS_MAX:
            raise BadArguments(f"a job has at most {TAGS_MAX} tags, not {len(self.tags)}")
        for tag in self.tags:
            check_name("tag", tag)
        check_range("priority", self.priority, PRIORITY_MIN, PRIORITY_MAX, int)
        check_range("delay_seconds", self.delay_seconds, 0, DELAY_SECONDS_MAX)
        if self.max_attempts is not None:
            check_range("max_attempts", self.max_attempts, 1, ATTEMPTS_MAX, int)
        if self.expires_in_seconds is not None:
            check_range("expires_in_seconds", self.expires_in_seconds, 0, DELAY_SECONDS_MAX)
        if not isinstance(self.id, UUID | None):
            raise BadArguments(f"id must be a UUID, not {self.id!r}")
        if self.run_at is not None:
            check_time("run_at", self.run_at)
        if self.run_at is not None and self.delay_seconds:
            raise BadArguments("pass run_at or delay_seconds, not both")

    def for_tenant(self, tenant: str) -> Options:
        if self.tenant not in (None, tenant):
            raise BadArguments(f"the options name tenant {self.tenant!r}, not {tenant!r}")
        return replace(self, tenant=tenant)


class Call(msgspec.Struct, frozen=True):
    """A job function with its arguments, for `hf.enqueue_many`.

    Inside a handler, the new job inherits the tenant and the correlation id of the handler's job,
    which is its parent, unless it belongs to another tenant: ids of jobs stay with their tenant.
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
        tenant = chosen.tenant or (context.tenant if context else DEFAULT_TENANT)
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
            tenant=tenant,
            correlation_id=chosen.correlation_id or (context.correlation_id if context else None),
            tags=chosen.tags,
            idempotency_key=chosen.idempotency_key,
            body_hash=codec.body_hash(name, self.arguments) if keyed else None,
            key_kept_seconds=keys_kept_seconds,
            trace=trace,
            breaker=self.breaker,
            parent_id=context.job_id if context and context.tenant == tenant else None,
        )

    def with_options(self, options: Options) -> Call:
        return msgspec.structs.replace(self, options=options)


class JobFunction(Generic[P, R]):
    """A function that can be enqueued: `await resize.enqueue(17)`.

    Calling it runs the function here and now. It has the function's name, docstring and signature.
    For type checkers, it has the parameters that `enqueue` takes and the result: a `JobFunction` of
    `[[int], str]` takes an `int`, and its result is a `str`.
    """

    __name__: str

    def __init__(
        self, app: Holdfast, definition: Definition, defaults: Options, connection: Any = None
    ) -> None:
        self._app = app
        self._definition = definition
        self._defaults = defaults
        self._connection = connection
        update_wrapper(self, definition.function, updated=())

    def __repr__(self) -> str:
        return f"<job {self.name}{inspect.signature(self)}>"

    @property
    def name(self) -> str:
        """The name under which the job is stored."""
        return self._definition.name

    @property
    def arguments_schema(self) -> dict[str, Any]:
        """The JSON Schema (draft 2020-12) of the job's arguments, as one object."""
        return self._definition.schemas.arguments

    @property
    def result_schema(self) -> dict[str, Any]:
        """The JSON Schema (draft 2020-12) of the job's result, as the handler annotates it."""
        return self._definition.schemas.result

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._definition.is_remote:
            raise ConfigurationError(
                f"{self.name} is a remote job and can't run here; enqueue it for a worker that"
                " leases it over HTTP"
            )
        return self._definition.function(*args, **kwargs)

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
    ) -> Self:
        """Return the same function with other options: `resize.options(priority=5).enqueue(17)`.

        With `connection`, the job is enqueued in the open transaction of that connection, which
        commits it or rolls it back.
        """
        given = locals()
        changed = {name: given[name] for name in Options.__slots__ if given[name] is not None}
        return type(self)(
            self._app,
            self._definition,
            replace(self._defaults, **changed),
            self._connection if connection is None else connection,
        )

    def _for_tenant(self, tenant: str) -> Self:
        options = self._defaults.for_tenant(tenant)
        return type(self)(self._app, self._definition, options, self._connection)

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call:
        """Check the arguments and keep them, for `hf.enqueue_many`."""
        if self._connection is not None:
            raise BadArguments(
                "a call has no connection: pass it to hf.enqueue_many(calls, connection=...)"
            )
        return self._call(self._defaults, args, kwargs)

    def _call(self, options: Options, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Call:
        bytes_max = self._app.settings.payload_bytes_max
        arguments = self._definition.signature.bind(args, kwargs, bytes_max=bytes_max)
        breaker = self._definition.breaker_key(arguments)
        return Call(self._definition, options, arguments, breaker)

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Enqueue a job with these arguments. Once this returns, the job can't be lost."""
        calls = [self._call(self._defaults, args, kwargs)]
        (job,) = await self._app.enqueue_many(calls, connection=self._connection)
        return job

    def enqueue_sync(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """`enqueue` for code without an event loop."""
        if self._connection is None:
            refuse_on_loop("enqueue_sync", "await enqueue(...)")
        calls = [self._call(self._defaults, args, kwargs)]
        (job,) = self._app.enqueue_many_sync(calls, connection=self._connection)
        return job


if TYPE_CHECKING:
    # What type checkers see of a direct call: the context comes first, and async functions return
    # a coroutine.

    class PlainJobFunction(JobFunction[P, R]):
        def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R: ...

    class AsyncJobFunction(JobFunction[P, R]):
        def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]: ...

    class ContextJobFunction(JobFunction[P, R]):
        def __call__(self, ctx: Context, /, *args: P.args, **kwargs: P.kwargs) -> R: ...

    class AsyncContextJobFunction(JobFunction[P, R]):
        def __call__(
            self, ctx: Context, /, *args: P.args, **kwargs: P.kwargs
        ) -> Coroutine[Any, Any, R]: ...


class JobDecorator(Protocol):
    """Turns a handler into a job function that takes the same arguments."""

    # They overlap, because a plain function may return a coroutine, too. The first that fits wins.
    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /
    ) -> AsyncContextJobFunction[P, R]: ...

    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncJobFunction[P, R]: ...

    @overload
    def __call__(
        self, function: Callable[Concatenate[Context, P], R], /
    ) -> ContextJobFunction[P, R]: ...

    @overload
    def __call__(self, function: Callable[P, R], /) -> PlainJobFunction[P, R]: ...


def define(
    function: Callable[..., Any], options: Mapping[str, Any], default_max_attempts: int
) -> tuple[Definition, Options]:
    """Split a handler's options into what workers need and how it is enqueued."""
    given = dict(options)
    known = JobOptions.__annotations__
    if unknown := given.keys() - known.keys():
        raise ConfigurationError(
            f"@hf.job has no option {min(unknown)!r}; the options are: {', '.join(known)}"
        )
    timeout_seconds = given.pop("timeout_seconds", None)
    if timeout_seconds is not None:
        check_range("timeout_seconds", timeout_seconds, TIMEOUT_SECONDS_MIN, DELAY_SECONDS_MAX)
    signature = Signature.of(function, given.pop("name", None))
    executor, memory_bytes_max = _executor(given, signature)
    definition = Definition(
        name=signature.name,
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
        encrypted=_flag("encrypted", given),
    )
    return definition, Options(**given)


def _executor(given: dict[str, Any], signature: Signature) -> tuple[str | None, int | None]:
    """Take `executor` and `memory_bytes_max` out of the options and check them."""
    executor = given.pop("executor", None)
    memory_bytes_max = given.pop("memory_bytes_max", None)
    if executor not in (None, "process", "remote"):
        raise ConfigurationError(
            f'executor must be "process", "remote" or omitted, not {executor!r}'
        )
    if executor == "process" and signature.is_async:
        raise ConfigurationError(
            f'{signature.name}: executor="process" needs a plain function; an async one runs on the'
            " worker's event loop"
        )
    if memory_bytes_max is not None:
        if executor != "process":
            raise ConfigurationError('memory_bytes_max needs executor="process"')
        check_range("memory_bytes_max", memory_bytes_max, 1, INTEGER_MAX, int)
    return executor, memory_bytes_max


def _flag(name: str, given: dict[str, Any]) -> bool:
    value = given.pop(name, False)
    if not isinstance(value, bool):
        raise ConfigurationError(f"{name} must be True or False, not {value!r}")
    return value


def _make_breaker(given: object, signature: Signature) -> Breaker | None:
    """Accept a Breaker, a key, or a function that returns a key."""
    if isinstance(given, str) or callable(given):
        given = Breaker(given)
    if given is None:
        return None
    if not isinstance(given, Breaker):
        raise ConfigurationError(f"breaker must be a key or a Breaker, not {given!r}")
    if not isinstance(given.key, str):
        try:
            inspect.signature(given.key).bind(**dict.fromkeys(signature.parameters))
        except TypeError as error:
            raise ConfigurationError(
                f"{signature.name}: the breaker's key function must take the handler's arguments by"
                f" name ({', '.join(signature.parameters)}): {error}"
            ) from None
    return given


def _listed(name: str, given: dict[str, Any], *kinds: type) -> tuple[Any, ...]:
    """Take a list out of the options. A string is not a list of its letters."""
    value = given.pop(name, ())
    if not isinstance(value, list | tuple | set | frozenset) or not all(
        isinstance(entry, kinds) for entry in value
    ):
        expected = " and ".join({str: "strings", type: "exception types"}[kind] for kind in kinds)
        raise ConfigurationError(f"{name} must be a list of {expected}, not {value!r}")
    return tuple(value)


def _make_retry(retry: Retry | Callable[[], Retry] | None, max_attempts: int) -> Retry:
    """Accept `Retry.none` as well as `Retry.none()`."""
    if retry is None:
        return Retry.exponential(max_attempts=max_attempts)
    made: object = retry() if callable(retry) else retry
    if not isinstance(made, Retry):
        raise ConfigurationError(f"retry must be a Retry, not {made!r}")
    return made
