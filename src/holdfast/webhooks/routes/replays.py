"""/v1/replays: send the events of a time range again."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final
from uuid import UUID

import msgspec
from fastapi import Request
from msgspec import Meta
from starlette.responses import Response

from holdfast.api import AsCaller, Router, answer, describes, read_body
from holdfast.api.examples import EXAMPLES, WHEN
from holdfast.api.fields import Name
from holdfast.api.idempotency import idempotent, read_key
from holdfast.webhooks.routes.shared import (
    REPLAY_ID,
    SUBSCRIPTION_ID,
    TENANT,
    changing,
    explained,
)
from holdfast.webhooks.rows import Replay, ReplayCount
from holdfast.webhooks.service import Webhooks

Time = Annotated[datetime, Meta(tz=True)]
LOCATION: Final = {"location": "The path of the replay"}


class ReplayRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Events that were published from `since` until before `until`. Without a subscription, to all
    that want them."""

    since: Time
    until: Time
    subscription_id: UUID | None = None
    dry_run: Annotated[bool, Meta(description="Only count, and change nothing.")] = False
    tenant: Annotated[Name | None, TENANT] = None


EXAMPLES.update(
    {
        ReplayRequest: {
            "since": "2026-11-16T03:00:00Z",
            "until": "2026-11-16T05:00:00Z",
            "dry_run": True,
        },
        Replay: {
            "id": REPLAY_ID,
            "tenant": "acme",
            "subscription_id": SUBSCRIPTION_ID,
            "since": "2026-11-16T03:00:00Z",
            "until": "2026-11-16T05:00:00Z",
            "events": 120,
            "sagas": 120,
            "created_at": WHEN,
            "ended_at": None,
        },
        ReplayCount: {"events": 120, "sagas": 240, "is_all": True},
    }
)


def add_routes(router: Router, webhooks: Webhooks) -> None:
    @router.post(
        "/v1/replays",
        **describes(
            "operate",
            {201: Replay, 200: ReplayCount},
            ["not-found", "bad-arguments"],
            body=ReplayRequest,
            headers=LOCATION,
            idempotency="optional",
        ),
    )
    async def replay_events(request: Request, caller: AsCaller) -> Response:
        """Send the events of a time range again. Returns 200 and the count for a dry run; otherwise
        201, and the orchestrator starts the sagas in small steps. Send an Idempotency-Key, so that
        a repeated request starts one replay."""
        body = await read_body(request, ReplayRequest)
        tenant = caller.tenant_name_for(body.tenant)
        which: dict[str, Any] = {"subscription_id": body.subscription_id, "tenant": tenant}
        if body.dry_run:
            read_key(request)  # refuses a malformed one, though a count needs none
            with explained():
                return answer(await webhooks.count_replay(body.since, body.until, **which))

        async def work(connection: Any) -> Response:
            target = f"{body.since.isoformat()} to {body.until.isoformat()}"
            async with changing(caller, "webhooks.replay", target, connection, jobs=0):
                made = await webhooks.replay(body.since, body.until, **which, connection=connection)
            return answer(made, 201, {"location": f"/v1/replays/{made.id}"})

        return await idempotent(request, caller, body, work)

    @router.get("/v1/replays/{replay_id}", **describes("read", {200: Replay}, ["not-found"]))
    async def get_replay(replay_id: UUID, caller: AsCaller) -> Response:
        """Get a replay, with how many events and sagas it has started so far."""
        with explained():
            return answer(await webhooks.get_replay(replay_id, tenant=caller.tenant))
