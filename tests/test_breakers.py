"""Breakers: what a job depends on, and what happens to the jobs while that is down."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import pytest

from holdfast import BadArguments, Breaker, ConfigurationError, Context, Holdfast
from holdfast.domain.limits import BREAKER_FAILURES_MAX, NAME_CHARS_MAX


def host_of(url: str, **others: Any) -> str | None:
    return urlsplit(url).hostname


@pytest.mark.parametrize(
    "given", ["gateway", Breaker("gateway"), lambda size, **_: "gateway" if size else None]
)
async def test_a_job_depends_on_what_its_function_names(local_hf: Holdfast, given: Any) -> None:
    @local_hf.job(breaker=given)
    async def convert(ctx: Context, size: int) -> None: ...

    job = await convert.enqueue(1)
    assert job.breaker == "gateway"
    assert (await local_hf.get(job.id)).breaker == "gateway"


async def test_a_job_without_a_breaker_depends_on_nothing(local_hf: Holdfast) -> None:
    @local_hf.job
    async def free() -> None: ...

    @local_hf.job(breaker=lambda: None)
    async def freed() -> None: ...

    assert [job.breaker for job in await local_hf.enqueue_many([free.call(), freed.call()])] == [
        None,
        None,
    ]


async def test_a_key_is_made_of_the_arguments_as_the_handler_gets_them(local_hf: Holdfast) -> None:
    seen: list[dict[str, Any]] = []

    def key(**values: Any) -> str:
        seen.append(values)
        return "key"

    @local_hf.job(breaker=key)
    async def send(ctx: Context, numbers: tuple[int, ...], *, times: int = 2) -> None: ...

    assert send.call([1, 2]).breaker == "key"  # type: ignore[arg-type]
    send.call((3,), times=5)
    assert seen == [{"numbers": (1, 2), "times": 2}, {"numbers": (3,), "times": 5}]


async def test_what_the_function_for_a_key_raises_is_told_to_who_enqueues(
    local_hf: Holdfast,
) -> None:
    @local_hf.job(breaker=lambda prices: prices["EUR"])
    async def buy(prices: dict[str, str]) -> None: ...

    with pytest.raises(BadArguments, match=r"buy: the function .* raised KeyError: 'EUR'"):
        await buy.enqueue({})
    with pytest.raises(BadArguments, match="buy: argument prices"):
        await buy.enqueue(1)  # type: ignore[arg-type]


@pytest.mark.parametrize("key", ["", "a\nb", "x" * (NAME_CHARS_MAX + 1), 7])
async def test_a_key_is_a_name(local_hf: Holdfast, key: Any) -> None:
    with pytest.raises(BadArguments, match="breaker's key"):
        Breaker(key)

    @local_hf.job(breaker=lambda: key)
    async def depend() -> None: ...

    with pytest.raises(BadArguments, match="breaker's key"):
        await depend.enqueue()


@pytest.mark.parametrize(
    "wrong",
    [
        {"failures": 0},
        {"failures": 2.5},
        {"failures": BREAKER_FAILURES_MAX + 1},
        {"window_seconds": 0},
        {"window_seconds": "30"},
        {"probe_seconds": -1},
        {"probe_seconds": float("nan")},
        {"errors": "GW_5XX"},
        {"errors": [5]},
        {"errors": [int]},
        {"errors": OSError},
    ],
)
def test_a_breaker_that_can_not_work_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        Breaker("gateway", **wrong)


@pytest.mark.parametrize(
    ("given", "text"),
    [(5, "must be a key or a Breaker"), (lambda host: host, r"by name \(url, times\)")],
)
def test_a_function_refuses_what_is_no_breaker_of_it(local_url: str, given: Any, text: str) -> None:
    hf = Holdfast(local_url)
    with pytest.raises(ConfigurationError, match=text):

        @hf.job(breaker=given)
        async def fetch(ctx: Context, url: str, times: int = 3) -> None: ...


async def test_a_requeued_job_keeps_its_key_whatever_its_new_arguments(local_hf: Holdfast) -> None:
    @local_hf.job(breaker=host_of)
    async def fetch(url: str) -> None: ...

    job = await fetch.enqueue("http://old.example/")
    await local_hf.cancel(job.id)
    again = await local_hf.requeue(job.id, arguments={"url": "http://new.example/"})
    assert again.breaker == job.breaker == "old.example"
