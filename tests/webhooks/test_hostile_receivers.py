"""Whatever a receiver does, each attempt is one request, and is recorded with its error code."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any, Final

import pytest

from holdfast import Retry
from holdfast.webhooks import Event
from tests.support.fast_forward import fast_forwarding
from tests.support.processes import wait_until
from tests.support.running import working
from tests.webhooks.hostile import (
    OK,
    Behavior,
    Hostile,
    dripping,
    fall_silent,
    hostile,
    repeating,
    reset,
    say_no_tls,
    saying,
)
from tests.webhooks.receiving import Receiver
from tests.webhooks.shop import Shop, both_stores

pytestmark = pytest.mark.heavy

TWICE: Final = Retry.schedule([0])
Expected = tuple[str, int | None, str | None]

ANSWERED: Final[Expected] = ("Completed", 200, None)
NO_NETWORK: Final[Expected] = ("Failed", None, "NETWORK_ERROR")
NO_HTTP: Final[Expected] = ("Failed", None, "BAD_RESPONSE")
TOO_LATE: Final[Expected] = ("Failed", None, "TIMEOUT")
LENGTH: Final = OK + b"Content-Length: 900\r\n\r\n"

QUICK_TO_FAIL: Final[dict[str, tuple[Behavior, Expected]]] = {
    "hangs up": (saying(b""), NO_NETWORK),
    "resets before the answer": (saying(b"", then=reset), NO_NETWORK),
    "resets in the headers": (saying(OK + b"X-Half: ", then=reset), NO_NETWORK),
    "resets in the body": (saying(LENGTH + b"half", then=reset), ANSWERED),
    "cuts the body off": (saying(LENGTH + b"half"), ANSWERED),
    "garbage status line": (saying(b"HTTP/1.1 two hundred\r\n\r\n"), NO_HTTP),
    "another protocol": (saying(b"SSH-2.0-OpenSSH_9.2\r\n"), NO_HTTP),
    "endless headers": (saying(OK, then=repeating(b"X-More: 1\r\n" * 5_000)), NO_HTTP),
    "endless header": (saying(OK + b"X: ", then=repeating(b"x" * 65_536)), NO_HTTP),
    "endless body": (saying(OK + b"\r\n", then=repeating(b"x" * 65_536)), ANSWERED),
    "redirect": (
        saying(b"HTTP/1.1 302 Found\r\nLocation: /other\r\nContent-Length: 0\r\n\r\n"),
        ("Failed", 302, "HTTP_302"),
    ),
    "headers that are not UTF-8": (
        saying(OK + b"X-Odd: \xff\xfe\x80\r\nContent-Length: 3\r\n\r\n\xff\x00\xfe"),
        ANSWERED,
    ),
}
SLOW: Final[dict[str, tuple[Behavior, Expected]]] = {
    "silence": (fall_silent, TOO_LATE),
    "silence in the headers": (saying(OK, then=fall_silent), TOO_LATE),
}
DRIPPING: Final[dict[str, tuple[Behavior, Expected]]] = {
    "dripping headers": (saying(OK, then=dripping(b"X-Drip: 1\r\n")), TOO_LATE),
    "dripping body": (saying(LENGTH, then=dripping(b"x")), ANSWERED),
}


async def deliver_to(shop: Shop, urls: dict[str, str]) -> dict[str, list[Expected]]:
    """Publish an event for each endpoint, work until all have ended, and return the attempts."""
    events = {}
    for name, url in urls.items():
        await shop.webhooks.subscribe(url, tenant=name)
        events[name] = await shop.publish(tenant=name)

    async def have_ended() -> bool:
        live = "SELECT id FROM holdfast.webhook_sagas WHERE ended_at IS NULL"
        return await shop.fetch(live) == []

    async with working(shop.hf, concurrency=20):
        await wait_until(have_ended, "all sagas ended")
    return {name: await attempts(shop, event) for name, event in events.items()}


async def attempts(shop: Shop, event: Event) -> list[Expected]:
    saga = await shop.saga(event)
    made = await shop.webhooks.attempts(saga.id)
    logged = [each for each in made if each.duration_ms is not None]
    assert logged == made
    return [(each.status, each.response_status, each.error_code) for each in made]


async def check(
    store_url: str, behaviors: dict[str, tuple[Behavior, Expected]], **options: Any
) -> None:
    async with AsyncExitStack() as stack:
        receivers: dict[str, Hostile] = {
            name: await stack.enter_async_context(hostile(behave))
            for name, (behave, _) in behaviors.items()
        }
        shop = await stack.enter_async_context(Shop.open(store_url, retry=TWICE, **options))
        told = await deliver_to(shop, {name: each.url for name, each in receivers.items()})
        expected = {
            name: [outcome] if outcome[0] == "Completed" else [outcome] * 2
            for name, (_, outcome) in behaviors.items()
        }
        assert told == expected
        requests = {name: receiver.connections for name, receiver in receivers.items()}
        assert requests == {name: len(made) for name, made in expected.items()}


@both_stores
async def test_each_attempt_at_a_hostile_receiver_is_one_request_with_its_code(
    store_url: str,
) -> None:
    await check(store_url, QUICK_TO_FAIL, timeout_seconds=60)


@both_stores
async def test_each_attempt_at_a_slow_receiver_is_one_request_with_its_code(
    store_url: str,
) -> None:
    await check(store_url, SLOW, timeout_seconds=1)


@both_stores
@pytest.mark.parametrize("name", DRIPPING)
@fast_forwarding
async def test_a_receiver_that_drips_is_cut_off_when_the_time_for_the_request_is_over(
    store_url: str, name: str
) -> None:
    """Alone, because its drips take the time of other requests, too."""
    await check(store_url, {name: DRIPPING[name]}, timeout_seconds=4)


@both_stores
async def test_an_attempt_that_finds_nobody_or_no_trust_is_recorded_with_its_code(
    store_url: str,
) -> None:
    async with hostile(fall_silent) as gone:
        pass
    async with (
        hostile(say_no_tls, scheme="https") as plain,
        Shop.open(store_url, retry=TWICE) as shop,
    ):
        told = await deliver_to(shop, {"gone": gone.url, "plain": plain.url})
    assert told == {"gone": [NO_NETWORK] * 2, "plain": [("Failed", None, "TLS_FAILED")] * 2}
    assert (gone.connections, plain.connections) == (0, 2)


@both_stores
async def test_an_attempt_at_a_forbidden_address_is_recorded_and_goes_nowhere(
    store_url: str, receiver: Receiver
) -> None:
    url = f"http://localhost:{receiver.port}/"
    async with Shop.open(store_url, retry=TWICE, allow_private_addresses=False) as shop:
        told = await deliver_to(shop, {"inside": url})
    assert told == {"inside": [NO_NETWORK] * 2}
    assert receiver.requests == []
