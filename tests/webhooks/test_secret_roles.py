"""Which role of the database may do what with the secrets of subscriptions."""

from __future__ import annotations

from uuid import uuid4

import asyncpg
import pytest

from holdfast import Holdfast
from holdfast.cli.operator import recorded
from holdfast.domain.encryption import make_keys
from holdfast.domain.scope import scope
from holdfast.operations.secrets import VARIABLE
from holdfast.webhooks import Webhooks
from tests.support.roles import InstalledRoles, installed_roles
from tests.webhooks.receiving import Receiver
from tests.webhooks.shop import AT_ONCE

pytestmark = pytest.mark.heavy

ADD = "SELECT holdfast.add_webhook_secret($1, $2, $3, 'k1', 'x'::bytea)"


def make_app(url: str) -> Holdfast:
    hf = Holdfast(url)
    Webhooks(hf)
    return hf


async def refused(roles: InstalledRoles, role: str, sql: str, *values: object) -> bool:
    connection = await asyncpg.connect(roles.url(role))
    try:
        await connection.fetch(sql, *values)
    except asyncpg.InsufficientPrivilegeError:
        return True
    finally:
        await connection.close()
    return False


async def test_each_role_does_its_own_with_secrets_and_nothing_else(
    postgres_url: str, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    k1, k2 = make_keys("k1"), make_keys("k2")
    monkeypatch.setenv(VARIABLE, k1)
    async with installed_roles(postgres_url, make_app) as roles:
        api = Holdfast(roles.url("api"))
        webhooks = Webhooks(api, https_only=False, allow_private_addresses=True, retry=AT_ONCE)
        async with api:
            with scope("acme"):
                made = await webhooks.subscribe(receiver.url, tenant="acme")
                await webhooks.rotate_secret(made.id)
            with scope("rival"), pytest.raises(asyncpg.ForeignKeyViolationError):
                async with api.transaction() as connection:
                    await connection.fetch(ADD, uuid4(), "acme", made.id)
        for role in ("api", "worker", "orchestrator", "operator", "readonly"):
            assert await refused(roles, role, "SELECT ciphertext FROM holdfast.webhook_secrets")
        for role in ("worker", "orchestrator", "delivery", "operator", "readonly"):
            assert await refused(roles, role, ADD, uuid4(), "acme", made.id)
        assert await refused(roles, "delivery", "UPDATE holdfast.webhook_secrets SET key_id = ''")
        assert not await refused(roles, "orchestrator", "SELECT holdfast.forget_webhook_secrets()")
        monkeypatch.setenv(VARIABLE, f"{k2},{k1}")
        delivery = make_app(roles.url("delivery"))
        async with delivery, recorded(delivery, "secret.reencrypt", "webhook_secrets"):
            assert (await delivery.secrets.reencrypt()).count == 2
        operator = make_app(roles.url("operator"))
        async with operator:
            (count,) = await operator.secrets.status()
            (entry,) = (await operator.audit.list()).entries
        assert (count.key_id, count.count, entry.action) == ("k2", 2, "secret.reencrypt")
