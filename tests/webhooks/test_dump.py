"""Whoever gets a copy of the database learns no secret from it."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

import pytest
from aiohttp import web

from holdfast import Context, Retry
from holdfast.webhooks import Message, Preset, Request
from holdfast.webhooks.limits import RESPONSE_BYTES_KEPT
from holdfast.webhooks.presets import PREFIX
from holdfast_systems.passport import BPC
from tests.support.api import served
from tests.support.dumping import dump, found
from tests.webhooks.shop import ACME, Shop, both_stores

pytestmark = [pytest.mark.heavy, both_stores]

AT_MOST_TWICE = Retry.schedule([0])


def _send_token(message: Message, keys: Sequence[bytes]) -> Request:
    """As some receivers want it: the secret itself, in several forms."""
    key = keys[-1]
    headers = {
        "Authorization": f"Bearer {base64.b64encode(key).decode()}",
        "X-Token": base64.urlsafe_b64encode(key).decode(),
        "X-Hex": key.hex().upper(),
    }
    return Request(headers, key + message.payload.encode())


TOKEN = Preset(name="token", make_request=_send_token, retry=AT_MOST_TWICE)


@asynccontextmanager
async def echoing() -> AsyncIterator[str]:
    """A receiver that repeats everything, and refuses what goes to /refuse."""

    async def repeat(request: web.Request) -> web.Response:
        body = await request.read()
        headers = {f"Echo-{name}": value for name, value in request.headers.items()}
        said = json.dumps(headers).replace("/", "\\/").encode() + body + body.hex().encode()
        if request.path == "/long":  # the log cuts this inside of the secret
            said = b"x" * (RESPONSE_BYTES_KEPT - 20) + body
        status = 503 if request.path == "/refuse" else 200
        return web.Response(status=status, body=said, headers=headers)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", repeat)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def fill(shop: Shop, receiver: str) -> list[str | bytes]:
    """Do all that has to do with a secret, and return the secrets."""
    secrets: list[str | bytes] = []
    for preset in ("standard", ACME.name, BPC.name, TOKEN.name):
        for path in ("hook", "refuse", "long"):
            made = await shop.webhooks.subscribe(f"{receiver}/{path}", preset=preset)
            renewed = await shop.webhooks.rotate_secret(made.id, keep_seconds=3600)
            secrets += [made.secret, renewed.secret]
            if preset == "standard":
                secrets += [
                    base64.b64decode(each.secret.removeprefix(PREFIX)) for each in (made, renewed)
                ]
    await shop.publish()
    await shop.hf.run_due()
    letters = await shop.webhooks.dead_letters()
    assert letters
    for letter in letters:
        await shop.webhooks.requeue(letter.id)
    await shop.hf.run_due()
    return secrets


async def use_keys(shop: Shop) -> list[str]:
    """Create, rotate and use keys over HTTP, and return their secret parts."""
    once = {"Idempotency-Key": '"once"'}
    new = {"name": "root", "scopes": ["read", "enqueue", "admin"]}
    async with served(shop.hf) as client:
        assert (await client.post("/v1/keys", json=new, headers=once)).status_code == 400
        made = (await client.post("/v1/keys", json=new)).json()
        as_root = {"Authorization": f"Bearer {made['key']}"}
        path = f"/v1/keys/{made['id']}/rotate"
        renewed = (await client.post(path, json={}, headers=as_root)).json()
    return [each["key"].rpartition("_")[2] for each in (made, renewed)]


async def enqueue_encrypted(shop: Shop) -> str:
    """Enqueue a job with a secret, directly and over HTTP, and run it; return the secret."""
    card = "4929 1234 5678 9012 of Jane Quickwater"

    @shop.hf.job(encrypted=True, retry=AT_MOST_TWICE)
    async def charge(ctx: Context, card: str, fail: bool = False) -> str:
        await ctx.progress({"charging": card})
        if fail:
            raise ValueError(f"refused: {card}")
        return f"charged {card}"

    refused = await charge.enqueue(card, fail=True)
    await shop.hf.run_due()
    new = {"name": "charge", "arguments": {"card": card}}
    paths = {"": new, "/batch": {"jobs": [new]}, f"/{refused.id}/requeue": {}}
    async with served(shop.hf) as client:
        for path, body in paths.items():
            headers = {"Idempotency-Key": f"once{path}"}
            answered = await client.post(f"/v1/jobs{path}", json=body, headers=headers)
            assert answered.status_code == 201, answered.text
            assert card in answered.text or path == "/batch"
    await shop.hf.run_due()
    return card


async def everything(shop: Shop) -> bytes:
    """The dump, and what is compressed in it."""
    answers = await shop.fetch("SELECT body FROM holdfast.api_requests WHERE body IS NOT NULL")
    text = dump(shop.url)
    for each in answers:
        with suppress(zlib.error):  # it is encrypted
            text += zlib.decompress(bytes(each["body"]))
    return text


async def test_a_copy_of_the_database_contains_no_secret(store_url: str) -> None:
    async with (
        Shop.open(store_url, presets=(ACME, BPC, TOKEN), retry=AT_MOST_TWICE) as shop,
        echoing() as receiver,
    ):
        secrets = [*await fill(shop, receiver), await enqueue_encrypted(shop)]
        secrets += await use_keys(shop)  # from now on, the service needs a key
        logged = await shop.fetch("SELECT response_body FROM holdfast.webhook_attempt_log")
        assert any(b"***" in bytes(each["response_body"]) for each in logged)
        text = await everything(shop)
        leaks = {secret: forms for secret in secrets if (forms := found(secret, text))}
        assert leaks == {}


async def test_the_search_finds_a_secret_in_clear(store_url: str) -> None:
    async with Shop.open(store_url) as shop:
        made = await shop.webhooks.subscribe("https://example.org/")
        assert found(made.secret, dump(store_url)) == []
        await shop.fetch(
            f"UPDATE holdfast.webhook_secrets SET secret = '{made.secret}', key_id = NULL,"
            " ciphertext = NULL"
        )
        text = dump(store_url)
        key = base64.b64decode(made.secret.removeprefix(PREFIX))
        assert found(made.secret, text)
        assert found(key, text)
