"""/v1/keys: create, list, rotate and revoke keys. /v1/me: what the request's key allows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Final, Literal

import msgspec
from fastapi import Request
from starlette.responses import Response

from holdfast.api.answers import answer
from holdfast.api.bodies import read_body
from holdfast.api.callers import AsCaller, Router
from holdfast.api.examples import EXAMPLES, WHEN
from holdfast.api.gate import rate_of
from holdfast.api.openapi import ANY, describes
from holdfast.api.problems import At, Problem
from holdfast.api.queries import read_query
from holdfast.api.service import Service
from holdfast.domain.errors import BadArguments
from holdfast.domain.keys import REQUESTS_PER_SECOND_MAX, Key, NewKey
from holdfast.domain.limits import DELAY_SECONDS_MAX, NAME_CHARS_MAX
from holdfast.operations.keys import OVERLAP_SECONDS, Keys

LOCATION: Final = {"location": "The path of the key"}
Scope = Literal["read", "enqueue", "operate", "work", "admin"]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=NAME_CHARS_MAX)]


class KeyRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A key to create. Without a tenant, it sees all tenants."""

    name: Name
    scopes: Annotated[list[Scope], msgspec.Meta(min_length=1)]
    tenant: Name | None = None
    expires_in_seconds: Annotated[float, msgspec.Meta(ge=1, le=DELAY_SECONDS_MAX)] | None = None
    requests_per_second: (
        Annotated[float, msgspec.Meta(ge=0.01, le=REQUESTS_PER_SECOND_MAX)] | None
    ) = None


class Rotation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long the old key still works."""

    overlap_seconds: Annotated[float, msgspec.Meta(ge=0, le=DELAY_SECONDS_MAX)] = OVERLAP_SECONDS


class KeyQuery(msgspec.Struct, frozen=True):
    """Whether to include expired and revoked keys."""

    ended: bool = False


class KeyList(msgspec.Struct, frozen=True):
    """The keys, oldest first."""

    keys: Sequence[Key]


class Me(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the request's key allows. While there are no keys, local callers may do everything."""

    name: str
    key_id: str | None = None
    tenant: str | None = None
    scopes: list[str]
    expires_at: datetime | None = None
    requests_per_second: float | None = None


_KEY: Final = {
    "id": "7kq2mzv4d3xa",
    "name": "shop",
    "tenant": "acme",
    "scopes": ["read", "enqueue"],
    "created_at": WHEN,
    "created_by": "ann@example.com",
    "expires_at": "2027-11-17T09:30:00Z",
}
EXAMPLES.update(
    {
        Key: _KEY,
        NewKey: {**_KEY, "key": f"hfk_7kq2mzv4d3xa_{'a2b3c4d5' * 6}e6f7"},
        KeyList: {"keys": [_KEY]},
        KeyRequest: {
            "name": "shop",
            "scopes": ["read", "enqueue"],
            "tenant": "acme",
            "expires_in_seconds": 31536000,
        },
        Rotation: {"overlap_seconds": 3600},
        Me: {
            "name": "shop",
            "key_id": "7kq2mzv4d3xa",
            "tenant": "acme",
            "scopes": ["enqueue", "read"],
            "requests_per_second": 1000,
        },
    }
)


def routes(service: Service) -> Router:
    router = Router(tags=["Keys"])
    keys = service.hf.keys

    @router.get("/v1/me", **describes(ANY, {200: Me}))
    async def get_me(caller: AsCaller) -> Response:
        """Get the name, tenant, scopes and rate limit of the request's key."""
        key = caller.key
        mine = Me(
            name=caller.name,
            key_id=caller.key_id,
            tenant=caller.tenant,
            scopes=sorted(caller.scopes),
            expires_at=None if key is None else key.expires_at,
            requests_per_second=None if key is None else rate_of(key),
        )
        return answer(mine)

    @router.get("/v1/keys", **describes("admin", {200: KeyList}, query=KeyQuery, across=True))
    async def list_keys(request: Request) -> Response:
        """List active keys, and with `ended=true` also expired and revoked ones."""
        return answer(KeyList(await keys.list(ended=read_query(request, KeyQuery).ended)))

    @router.get("/v1/keys/{key_id}", **describes("admin", {200: Key}, ["not-found"], across=True))
    async def get_key(key_id: str) -> Response:
        """Get a key, without its secret text."""
        return answer(await keys.get(key_id))

    _add_changes(router, keys)
    return router


def _add_changes(router: Router, keys: Keys) -> None:
    @router.post(
        "/v1/keys",
        **describes("admin", {201: NewKey}, body=KeyRequest, headers=LOCATION, across=True),
    )
    async def create_key(request: Request, caller: AsCaller) -> Response:
        """Create a key. Only this response contains its secret text."""
        _refuse_idempotency_key(request)
        new = await read_body(request, KeyRequest)
        try:
            made = await keys.create(
                new.name,
                scopes=new.scopes,
                tenant=new.tenant,
                expires_in_seconds=new.expires_in_seconds,
                requests_per_second=new.requests_per_second,
                by=caller.actor,
            )
        except BadArguments as error:
            raise Problem("bad-request", str(error)) from None
        return answer(made, 201, {"location": f"/v1/keys/{made.id}"})

    @router.post(
        "/v1/keys/{key_id}/rotate",
        **describes(
            "admin",
            {201: NewKey},
            ["not-found", "wrong-state"],
            body=Rotation,
            headers=LOCATION,
            across=True,
        ),
    )
    async def rotate_key(request: Request, key_id: str, caller: AsCaller) -> Response:
        """Create a key with the same rights. The old key works until the overlap ends."""
        _refuse_idempotency_key(request)
        rotation = await read_body(request, Rotation)
        made = await keys.rotate(key_id, overlap_seconds=rotation.overlap_seconds, by=caller.actor)
        return answer(made, 201, {"location": f"/v1/keys/{made.id}"})

    @router.delete(
        "/v1/keys/{key_id}", **describes("admin", {200: Key}, ["not-found"], across=True)
    )
    async def revoke_key(key_id: str, caller: AsCaller) -> Response:
        """Revoke a key for good. Servers reject it within 2 seconds. It stays in the list of ended
        keys."""
        return answer(await keys.revoke(key_id, by=caller.actor))


def _refuse_idempotency_key(request: Request) -> None:
    """The response contains a secret, so it is not stored and can't be repeated."""
    if "idempotency-key" in request.headers:
        detail = (
            "a new key is shown only once, so this request takes no Idempotency-Key; if you don't"
            " get a response, list the keys and revoke the one you never received"
        )
        raise Problem("bad-request", detail, [At(detail, parameter="Idempotency-Key")])
