"""/v1/sagas: the deliveries of events to subscriptions, and their attempts."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final
from uuid import UUID

import msgspec
from fastapi import Request
from msgspec import Meta
from starlette.responses import Response

from holdfast.api import AsCaller, Router, answer, describes
from holdfast.api.bodies import read_optional_body
from holdfast.api.examples import EXAMPLES, JOB_ID, WHEN
from holdfast.api.fields import Because
from holdfast.api.queries import read_query
from holdfast.webhooks.routes.shared import (
    EVENT_ID,
    LINK,
    SAGA_ID,
    SUBSCRIPTION_ID,
    PageQuery,
    after_of,
    answer_page,
    changing,
    explained,
)
from holdfast.webhooks.rows import Attempt, JobStatus, Saga, SagaStatus
from holdfast.webhooks.service import Webhooks


class SagaQuery(PageQuery, frozen=True, kw_only=True):
    """Which sagas to list: those that match all of these."""

    status: SagaStatus | None = None
    subscription_id: UUID | None = None
    event_id: Annotated[UUID | None, Meta(description="All sagas of this event, on one page.")] = (
        None
    )


class SagaList(msgspec.Struct, frozen=True):
    """Sagas, newest first. `next` is the path of the next page, or null on the last page.

    A page can have fewer sagas than you asked for and still have a `next`: one request reads a
    limited number of them.
    """

    sagas: list[Saga]
    next: str | None


class SagaCancel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why a saga is canceled."""

    because: Because | None = None


class DeliveryAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """One request and its result. The response is cut."""

    id: UUID
    saga_id: UUID
    attempt_no: int
    status: JobStatus
    lease_until: datetime | None
    attempt_at: datetime
    ended_at: datetime | None
    response_status: int | None
    error_code: str | None
    error_text: str | None
    duration_ms: int | None
    response_headers: dict[str, str] | None
    response_body: str | None


class AttemptList(msgspec.Struct, frozen=True):
    """The attempts of a saga, oldest first."""

    attempts: list[DeliveryAttempt]


_SAGA: Final = {
    "id": SAGA_ID,
    "tenant": "acme",
    "event_id": EVENT_ID,
    "subscription_id": SUBSCRIPTION_ID,
    "status": "Pending",
    "attempt_count": 1,
    "next_attempt_at": WHEN,
    "requeued_from": None,
    "replay_id": None,
    "created_at": WHEN,
    "ended_at": None,
}
EXAMPLES.update(
    {
        Saga: _SAGA,
        SagaList: {"sagas": [_SAGA], "next": None},
        SagaCancel: {"because": "wrong order"},
        AttemptList: {
            "attempts": [
                {
                    "id": JOB_ID,
                    "saga_id": SAGA_ID,
                    "attempt_no": 1,
                    "status": "Failed",
                    "lease_until": WHEN,
                    "attempt_at": WHEN,
                    "ended_at": WHEN,
                    "response_status": 503,
                    "error_code": "HTTP_503",
                    "error_text": None,
                    "duration_ms": 42,
                    "response_headers": {"Retry-After": "120"},
                    "response_body": "try again later",
                }
            ]
        },
    }
)


def add_routes(router: Router, webhooks: Webhooks) -> None:
    @router.get("/v1/sagas", **describes("read", {200: SagaList}, query=SagaQuery, headers=LINK))
    async def list_sagas(request: Request, caller: AsCaller) -> Response:
        """List sagas, newest first."""
        query = read_query(request, SagaQuery)
        tenant = caller.tenant_name_for(query.tenant)
        filter = (tenant, query.status, query.subscription_id, query.event_id)
        after = after_of(request, caller, query, *filter)
        if query.event_id is not None:
            of_event = await webhooks.sagas(event_id=query.event_id, tenant=tenant)
            found = [each for each in reversed(of_event) if _matches(each, query)]
            return answer_page(request, caller, "sagas", found, None, *filter)
        page = await webhooks.list_sagas(
            tenant=tenant,
            status=query.status,
            subscription_id=query.subscription_id,
            limit=query.limit,
            after=after,
        )
        return answer_page(request, caller, "sagas", page.sagas, page.after, *filter)

    @router.get("/v1/sagas/{saga_id}", **describes("read", {200: Saga}, ["not-found"]))
    async def get_saga(saga_id: UUID, caller: AsCaller) -> Response:
        """Get a saga."""
        with explained():
            return answer(await webhooks.saga(saga_id, tenant=caller.tenant))

    @router.get(
        "/v1/sagas/{saga_id}/attempts", **describes("read", {200: AttemptList}, ["not-found"])
    )
    async def list_saga_attempts(saga_id: UUID, caller: AsCaller) -> Response:
        """List the attempts of a saga, oldest first, with what the receiver answered."""
        with explained():
            saga = await webhooks.saga(saga_id, tenant=caller.tenant)
        made = await webhooks.attempts(saga.id, tenant=caller.tenant)
        return answer(AttemptList([_shown(each) for each in made]))

    @router.post(
        "/v1/sagas/{saga_id}/cancel",
        **describes(
            "operate",
            {200: Saga},
            ["not-found", "wrong-state"],
            body=SagaCancel,
            body_required=False,
        ),
    )
    async def cancel_saga(saga_id: UUID, request: Request, caller: AsCaller) -> Response:
        """Cancel a saga that has not ended. A request that is being sent may still arrive."""
        body = await read_optional_body(request, SagaCancel)
        async with changing(caller, "saga.cancel", saga_id, because=body.because):
            return answer(await webhooks.cancel(saga_id, tenant=caller.tenant))


def _matches(saga: Saga, query: SagaQuery) -> bool:
    return query.status in (None, saga.status) and query.subscription_id in (
        None,
        saga.subscription_id,
    )


def _shown(attempt: Attempt) -> DeliveryAttempt:
    headers, body = attempt.response_headers, attempt.response_body
    return DeliveryAttempt(
        **msgspec.structs.asdict(attempt)
        | {
            "response_headers": headers and msgspec.json.decode(headers, type=dict[str, str]),
            "response_body": None if body is None else body.decode("utf-8", "replace"),
        }
    )
