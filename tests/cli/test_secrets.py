"""`holdfast secrets`, run as people and scripts run it."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest

from holdfast import Holdfast
from holdfast.domain.encryption import SecretKeys, make_keys
from holdfast.operations.secrets import VARIABLE
from holdfast.webhooks import Webhooks
from tests.support.command import run_command

pytestmark = pytest.mark.heavy

K1, K2 = make_keys("k1"), make_keys("k2")
APP = """
from holdfast import Holdfast
from holdfast.webhooks import Webhooks

hf = Holdfast()
webhooks = Webhooks(hf)
"""


async def subscribe(url: str) -> None:
    hf = Holdfast(url)
    webhooks = Webhooks(hf)
    async with hf:
        await webhooks.subscribe("https://example.org/")


def test_a_new_key_can_be_used_as_it_is_printed(tmp_path: Path) -> None:
    made = run_command("secrets", "new-key", "2027-01", folder=tmp_path)
    assert SecretKeys.parse(made.stdout.strip(), "it").ids == ("2027-01",)
    assert made.stdout.strip() not in made.stderr


def test_an_operator_rotates_keys(
    local_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret_app.py").write_text(APP)

    def secrets(keys: str, *words: str, code: int = 0) -> tuple[str, str]:
        given = {VARIABLE: keys, "HOLDFAST_APP": "secret_app:hf"}
        done = run_command(*words, folder=tmp_path, url=local_url, environment=given)
        assert done.returncode == code, done.stderr
        assert K1.partition(":")[2][:12] not in done.stdout + done.stderr
        return done.stdout, done.stderr

    monkeypatch.setenv(VARIABLE, K1)
    asyncio.run(subscribe(local_url))
    _, said = secrets(K2, "secrets", "reencrypt", code=1)
    assert "1 left under k1, which is unknown here: add it to HOLDFAST_SECRET_KEYS" in said
    shown, _ = secrets(K2, "secrets", "status")
    assert re.search(r"webhook_secrets\s+k1\s+1\s+unknown here", shown)
    done, said = secrets(f"{K2},{K1}", "secrets", "reencrypt")
    assert (done.strip(), "webhook_secrets: 1 re-encrypted" in said) == (
        "re-encrypted 1 secret",
        True,
    )
    shown, _ = secrets(K2, "secrets", "status", "--json")
    assert json.loads(shown) == {
        "kind": "webhook_secrets",
        "key_id": "k2",
        "count": 1,
        "is_current": True,
        "is_known": True,
    }
