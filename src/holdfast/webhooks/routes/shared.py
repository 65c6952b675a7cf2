"""What the routes of webhooks share: pages, examples, and errors as problems."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Annotated, Any, Final
from uuid import UUID

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from holdfast.api import At, Caller, Problem, answer
from holdfast.api.cursors import next_page, read_cursor
from holdfast.api.fields import Name
from holdfast.api.limits import PAGE_JOBS_DEFAULT, PAGE_JOBS_MAX
from holdfast.webhooks.errors import BadEndpoint, EventConflict, WebhookNotFound

TENANT: Final = Meta(description="Only for keys that see all tenants. Default: `default`.")
CURSOR: Final = Meta(description="From the `next` of the previous page.")
LINK: Final = {"link": 'The next page, as `<path>; rel="next"`'}

SUBSCRIPTION_ID: Final = "01a1eb4e-7c00-7000-8000-0000000000a1"
EVENT_ID: Final = "01a1eb4e-7c00-7000-8000-0000000000a2"
SAGA_ID: Final = "01a1eb4e-7c00-7000-8000-0000000000a3"
LETTER_ID: Final = "01a1eb4e-7c00-7000-8000-0000000000a4"
REPLAY_ID: Final = "01a1eb4e-7c00-7000-8000-0000000000a5"


class PageQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Whose rows to list, and which page of them."""

    tenant: Annotated[Name | None, TENANT] = None
    limit: Annotated[int, Meta(ge=1, le=PAGE_JOBS_MAX)] = PAGE_JOBS_DEFAULT
    cursor: Annotated[str | None, CURSOR] = None


class TenantQuery(msgspec.Struct, frozen=True):
    """Whose row it is: an event ID belongs to a tenant."""

    tenant: Annotated[Name | None, TENANT] = None


@contextmanager
def explained() -> Iterator[None]:
    """Turn the errors of webhooks into problems."""
    try:
        yield
    except WebhookNotFound as error:
        reason = f"{error.kind.upper().replace(' ', '_')}_NOT_FOUND"
        raise Problem("not-found", str(error), reason=reason) from None
    except EventConflict as error:
        raise Problem("wrong-state", str(error), reason="EVENT_CONFLICT") from None
    except BadEndpoint as error:
        raise Problem("bad-arguments", str(error), reason="BAD_ENDPOINT") from None


@asynccontextmanager
async def changing(
    caller: Caller, action: str, target: object, connection: Any = None, **more: Any
) -> AsyncIterator[None]:
    """Record a change in the audit log, and explain why it fails."""
    with explained():
        async with caller.audited(action, target, connection=connection, **more):
            yield


def refuse_idempotency_key(request: Request) -> None:
    """The response contains a secret, so it is not stored and can't be repeated."""
    if "idempotency-key" in request.headers:
        detail = (
            "a webhook secret is shown only once, so this request takes no Idempotency-Key; if you"
            " don't get a response, rotate the secret"
        )
        raise Problem("bad-request", detail, [At(detail, parameter="Idempotency-Key")])


def after_of(request: Request, caller: Caller, query: Any, *filter: object) -> UUID | None:
    return read_cursor(query.cursor, request.url.path, caller.tenant, *filter)


def answer_page(
    request: Request,
    caller: Caller,
    name: str,
    found: list[Any],
    after: UUID | None,
    *filter: object,
) -> Response:
    """Return the rows under this name, and the path of the next page."""
    following, headers = next_page(request, after, request.url.path, caller.tenant, *filter)
    return answer({name: found, "next": following}, headers=headers)


def last_of(found: list[Any], limit: int) -> UUID | None:
    """Where the next page starts, if this one is full."""
    return found[-1].id if len(found) == limit else None
