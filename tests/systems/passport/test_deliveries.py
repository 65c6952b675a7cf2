"""Deliveries in this system's terms: one row for each event and endpoint, with the last answer."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import pytest

from holdfast.webhooks import BadEndpoint
from holdfast_systems.passport import app
from holdfast_systems.passport.queries import Delivery
from tests.promises.stage import both_stores
from tests.support.postgres import free_port
from tests.systems.passport.line import Line, on_sqlite
from tests.systems.passport.samples import TENANT
from tests.webhooks.receiving import receiving

pytestmark = pytest.mark.heavy

COLUMNS = [
    "webhook_delivery_id", "tenant_id", "webhook_endpoint_id", "event_id", "status", "http_status",
    "response_headers", "response_body", "delivered_at", "error_message", "created_at",
    "error_code",
]  # fmt: skip


@asynccontextmanager
async def local_line(url: str, **options: Any) -> AsyncIterator[Line]:
    line = Line(url, https_only=False, allow_private_addresses=True, **options)
    await line.hf.migrate()
    async with line.hf:
        yield line


async def subscribe(line: Line, url: str) -> UUID:
    made = await line.webhooks.subscribe(
        url, event_types=["PASSPORT_SIGNED"], tenant=TENANT, preset="bpc"
    )
    return made.id


async def next_attempt(line: Line) -> None:
    """The next attempt is due in some seconds: make it due now."""
    schema = "" if line.url.startswith("sqlite") else "holdfast."
    async with line.hf.transaction() as connection:
        await connection.execute(
            f"UPDATE {schema}webhook_sagas SET next_attempt_at = created_at"
            " WHERE status = 'Pending'"
        )
    await line.run()


async def only(line: Line, version_id: UUID) -> Delivery:
    (delivery,) = await line.passport.queries.deliveries(TENANT, version_id)
    return delivery


@both_stores
async def test_a_delivery_is_pending_after_a_refusal_and_delivered_in_the_end(
    store_url: str,
) -> None:
    async with receiving(503, 200) as receiver, local_line(store_url) as line:
        endpoint_id = await subscribe(line, receiver.url)
        version_id = await line.issue()
        pending = await only(line, version_id)
        assert (pending.status, pending.http_status) == ("PENDING", 503)
        assert (pending.error_code, pending.delivered_at) == ("WebhookNon2xx", None)
        assert pending.error_message == "WebhookNon2xx: the endpoint answered 503"
        await next_attempt(line)
        delivered = await only(line, version_id)
        assert (delivered.status, delivered.http_status) == ("DELIVERED", 200)
        assert (delivered.error_code, delivered.error_message) == (None, None)
        assert delivered.webhook_endpoint_id == endpoint_id
        assert delivered.response_body == b"thanks"
        assert "Content-Length" in (delivered.response_headers or "")
        assert delivered.delivered_at is not None
        (row,) = await line.rows("webhook_deliveries")
        assert list(row) == COLUMNS
        ids = {request.headers["X-BPC-Delivery-Id"] for request in receiver.requests}
        assert ids == {str(delivered.webhook_delivery_id)}
        body = json.loads(receiver.requests[-1].body)
        assert body["event_type"] == "PASSPORT_SIGNED"
        assert body["payload"] == {"passport_version_id": str(version_id), "key_id": "key-1"}
        assert await line.passport.queries.deliveries("another", version_id) == []


@both_stores
async def test_a_delivery_that_nobody_accepts_fails_after_five_attempts(store_url: str) -> None:
    async with receiving(500) as receiver, local_line(store_url) as line:
        await subscribe(line, receiver.url)
        version_id = await line.issue()
        for _ in range(4):
            assert (await only(line, version_id)).status == "PENDING"
            await next_attempt(line)
        failed = await only(line, version_id)
        assert (failed.status, failed.error_code) == ("FAILED", "WebhookNon2xx")
        assert len(receiver.requests) == 5


@on_sqlite
async def test_a_receiver_that_is_not_there_is_an_http_exception(store_url: str) -> None:
    async with local_line(store_url) as line:
        await subscribe(line, f"http://127.0.0.1:{free_port()}/hook")
        found = await only(line, await line.issue())
        assert (found.status, found.http_status) == ("PENDING", None)
        assert found.error_code == "HttpException"
        assert found.error_message == "HttpException: could not connect to the receiver"


@both_stores
async def test_a_receiver_that_does_not_answer_is_a_timeout(store_url: str) -> None:
    async with receiving() as receiver, local_line(store_url, timeout_seconds=0.2) as line:
        receiver.gate.clear()
        await subscribe(line, receiver.url)
        found = await only(line, await line.issue())
        assert (found.status, found.error_code) == ("PENDING", "WebhookTimeout")


@on_sqlite
async def test_an_endpoint_that_was_disabled_gets_nothing_more(store_url: str) -> None:
    async with receiving(503) as receiver, local_line(store_url) as line:
        endpoint_id = await subscribe(line, receiver.url)
        version_id = await line.issue()
        await line.webhooks.disable(endpoint_id, tenant=TENANT)
        await next_attempt(line)
        assert (await only(line, version_id)).status == "FAILED"


@on_sqlite
async def test_events_that_are_not_about_passports_are_not_listed(store_url: str) -> None:
    async with receiving() as receiver, local_line(store_url) as line:
        await line.webhooks.subscribe(receiver.url, tenant=TENANT)
        await line.webhooks.publish("order.paid", {}, tenant=TENANT)
        await line.run()
        assert len(receiver.requests) == 1
        assert await line.rows("webhook_deliveries") == []


async def test_the_application_waits_30_seconds_and_wants_https() -> None:
    assert app.webhooks._subscriptions._policies["bpc"].timeout_seconds == 30
    with pytest.raises(BadEndpoint, match="https"):
        await app.webhooks.subscribe("http://example.com/hook", preset="bpc")
