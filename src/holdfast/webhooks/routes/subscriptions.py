"""/v1/subscriptions: where events are sent to."""

from __future__ import annotations

from typing import Annotated, Any, Final
from uuid import UUID

import msgspec
from fastapi import Request
from msgspec import Meta
from starlette.responses import Response

from holdfast.api import AsCaller, Router, answer, describes, read_body
from holdfast.api.bodies import read_optional_body
from holdfast.api.examples import EXAMPLES, WHEN
from holdfast.api.fields import Name
from holdfast.api.idempotency import idempotent
from holdfast.api.queries import read_query
from holdfast.webhooks.limits import (
    EVENT_TYPES_MAX,
    SECRET_KEPT_SECONDS,
    SECRET_KEPT_SECONDS_MAX,
    URL_CHARS_MAX,
)
from holdfast.webhooks.routes.events import LOCATION as EVENT_LOCATION
from holdfast.webhooks.routes.events import EventType, PublishedEvent, published
from holdfast.webhooks.routes.shared import (
    LINK,
    SUBSCRIPTION_ID,
    TENANT,
    PageQuery,
    after_of,
    answer_page,
    changing,
    explained,
    last_of,
    refuse_idempotency_key,
)
from holdfast.webhooks.rows import NewSubscription, Subscription
from holdfast.webhooks.service import Webhooks

Url = Annotated[str, Meta(min_length=1, max_length=URL_CHARS_MAX)]
EventTypes = Annotated[
    list[EventType], Meta(max_length=EVENT_TYPES_MAX, description="None means all.")
]
Secret = Annotated[
    str, Meta(min_length=1, max_length=200, description="Default: a new one is made.")
]
KeepSeconds = Annotated[
    float,
    Meta(ge=0, le=SECRET_KEPT_SECONDS_MAX, description="How long the old secrets still sign, too."),
]
LOCATION: Final = {"location": "The path of the subscription"}


class SubscriptionRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where to send events, and which."""

    url: Url
    event_types: EventTypes = []
    preset: Name = "standard"
    secret: Secret | None = None
    tenant: Annotated[Name | None, TENANT] = None


class SubscriptionChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to change. What is missing stays."""

    url: Url | None = None
    event_types: EventTypes | None = None


class SecretRotation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to replace a secret."""

    keep_seconds: KeepSeconds = SECRET_KEPT_SECONDS
    secret: Secret | None = None


class TestEvent(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to send. Default: `{"test": true}`."""

    payload: dict[str, Any] | None = None


class SubscriptionPage(msgspec.Struct, frozen=True):
    """Subscriptions, oldest first. `next` is the path of the next page, or null on the last."""

    subscriptions: list[Subscription]
    next: str | None


_SHOWN: Final = {
    "id": SUBSCRIPTION_ID,
    "tenant": "acme",
    "url": "https://example.org/hooks/shop",
    "event_types": ["order.paid"],
    "preset": "standard",
    "created_at": WHEN,
    "disabled_at": None,
    "disabled_because": None,
    "failing_since": None,
}
EXAMPLES.update(
    {
        Subscription: _SHOWN,
        NewSubscription: {**_SHOWN, "secret": "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"},
        SubscriptionPage: {"subscriptions": [_SHOWN], "next": None},
        SubscriptionRequest: {
            "url": "https://example.org/hooks/shop",
            "event_types": ["order.paid"],
        },
        SubscriptionChange: {"event_types": ["order.paid", "order.lost"]},
        SecretRotation: {"keep_seconds": 604800},
        TestEvent: {"payload": {"test": True}},
    }
)
_ONE: Final = "/v1/subscriptions/{subscription_id}"


def add_routes(router: Router, webhooks: Webhooks) -> None:
    _add_reading(router, webhooks)
    _add_creating(router, webhooks)
    _add_changing(router, webhooks)
    _add_secrets_and_tests(router, webhooks)


def _add_reading(router: Router, webhooks: Webhooks) -> None:
    @router.get(
        "/v1/subscriptions",
        **describes("read", {200: SubscriptionPage}, query=PageQuery, headers=LINK),
    )
    async def list_subscriptions(request: Request, caller: AsCaller) -> Response:
        """List subscriptions, oldest first."""
        query = read_query(request, PageQuery)
        tenant = caller.tenant_name_for(query.tenant)
        after = after_of(request, caller, query, tenant)
        found = await webhooks.subscriptions(tenant=tenant, limit=query.limit, after=after)
        last = last_of(found, query.limit)
        return answer_page(request, caller, "subscriptions", found, last, tenant)

    @router.get(_ONE, **describes("read", {200: Subscription}, ["not-found"]))
    async def get_subscription(subscription_id: UUID, caller: AsCaller) -> Response:
        """Get a subscription, without its secret."""
        with explained():
            return answer(await webhooks.subscription(subscription_id, tenant=caller.tenant))


def _add_creating(router: Router, webhooks: Webhooks) -> None:
    @router.post(
        "/v1/subscriptions",
        **describes(
            "operate",
            {201: NewSubscription},
            ["bad-arguments"],
            body=SubscriptionRequest,
            headers=LOCATION,
        ),
    )
    async def create_subscription(request: Request, caller: AsCaller) -> Response:
        """Send events to a URL from now on. Only this response contains the secret that requests
        are signed with."""
        refuse_idempotency_key(request)
        body = await read_body(request, SubscriptionRequest)
        values = msgspec.structs.asdict(body)
        values["tenant"] = caller.tenant_name_for(body.tenant)
        with explained():
            async with caller.hf.transaction() as connection:
                made = await webhooks.subscribe(**values, connection=connection)
                await caller.audit("subscription.create", made.id, jobs=0, connection=connection)
        return answer(made, 201, {"location": f"/v1/subscriptions/{made.id}"})


def _add_changing(router: Router, webhooks: Webhooks) -> None:
    @router.patch(
        _ONE,
        **describes(
            "operate", {200: Subscription}, ["not-found", "bad-arguments"], body=SubscriptionChange
        ),
    )
    async def change_subscription(
        subscription_id: UUID, request: Request, caller: AsCaller
    ) -> Response:
        """Change the URL or the event types. The next attempts use them, even those of sagas that
        have already started."""
        body = await read_body(request, SubscriptionChange)
        async with changing(caller, "subscription.change", subscription_id, jobs=0):
            return answer(
                await webhooks.change(
                    subscription_id,
                    url=body.url,
                    event_types=body.event_types,
                    tenant=caller.tenant,
                )
            )

    @router.post(f"{_ONE}/disable", **describes("operate", {200: Subscription}, ["not-found"]))
    async def disable_subscription(subscription_id: UUID, caller: AsCaller) -> Response:
        """Send nothing more. Open sagas of the subscription end as `Canceled`."""
        async with changing(caller, "subscription.disable", subscription_id, jobs=0):
            return answer(await webhooks.disable(subscription_id, tenant=caller.tenant))

    @router.post(f"{_ONE}/enable", **describes("operate", {200: Subscription}, ["not-found"]))
    async def enable_subscription(subscription_id: UUID, caller: AsCaller) -> Response:
        """Send new events again. Replay a time range to send those that were missed."""
        async with changing(caller, "subscription.enable", subscription_id, jobs=0):
            return answer(await webhooks.enable(subscription_id, tenant=caller.tenant))

    @router.delete(_ONE, **describes("operate", {204: None}, ["not-found"]))
    async def delete_subscription(subscription_id: UUID, caller: AsCaller) -> Response:
        """Delete a subscription and its secrets. Open sagas of the subscription end as
        `Canceled`."""
        async with changing(caller, "subscription.delete", subscription_id, jobs=0):
            await webhooks.delete(subscription_id, tenant=caller.tenant)
        return Response(status_code=204)


def _add_secrets_and_tests(router: Router, webhooks: Webhooks) -> None:
    @router.post(
        f"{_ONE}/rotate-secret",
        **describes(
            "operate",
            {200: NewSubscription},
            ["not-found", "bad-arguments"],
            body=SecretRotation,
            body_required=False,
        ),
    )
    async def rotate_subscription_secret(
        subscription_id: UUID, request: Request, caller: AsCaller
    ) -> Response:
        """Replace the secret. Only this response contains the new one. For a while, requests are
        signed with the old ones, too."""
        refuse_idempotency_key(request)
        body = await read_optional_body(request, SecretRotation)
        async with changing(caller, "subscription.rotate", subscription_id, jobs=0):
            renewed = await webhooks.rotate_secret(
                subscription_id,
                keep_seconds=body.keep_seconds,
                secret=body.secret,
                tenant=caller.tenant,
            )
        return answer(renewed)

    @router.post(
        f"{_ONE}/test",
        **describes(
            "operate",
            {201: PublishedEvent},
            ["not-found", "wrong-state", "bad-arguments", "too-large"],
            body=TestEvent,
            body_required=False,
            headers=EVENT_LOCATION,
            idempotency="optional",
        ),
    )
    async def send_test_event(
        subscription_id: UUID, request: Request, caller: AsCaller
    ) -> Response:
        """Send an event of type `webhooks.test` to this subscription only."""
        body = await read_optional_body(request, TestEvent)

        async def work(connection: Any) -> Response:
            async with changing(caller, "subscription.test", subscription_id, connection):
                return published(
                    await webhooks.send_test(
                        subscription_id, body.payload, tenant=caller.tenant, connection=connection
                    )
                )

        return await idempotent(request, caller, body, work)
