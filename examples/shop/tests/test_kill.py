"""The real thing: a worker is killed between the charge and its commit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any

import httpx
import pytest

from holdfast.testing import Sandbox
from shop import jobs, payments, provider
from tests.test_orders import GOOD, fill, place


class SlowCharges(dict[str, provider.Charge]):
    """The provider has charged the card, but its answer takes a while."""

    def __init__(self) -> None:
        self.charged = Event()
        self.may_answer = Event()

    def setdefault(self, key: str, charge: Any = None) -> provider.Charge:
        made = super().setdefault(key, charge)
        self.charged.set()
        assert self.may_answer.wait(60)
        return made


@contextmanager
def worker(sandbox: Sandbox, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    environment = {
        **os.environ,
        "SHOP_DATABASE_URL": sandbox.url,
        "SHOP_PAYMENTS_URL": payments.URL,
        "SHOP_OUTBOX": str(jobs.OUTBOX),
        "HOLDFAST_LEASE_SECONDS": "2",
        "HOLDFAST_RECLAIM_SECONDS": "0.5",
    }
    words = [sys.executable, "-m", "holdfast", "worker", "shop.jobs:hf", *options]
    folder = Path(__file__).parents[1]
    with subprocess.Popen(words, env=environment, cwd=folder, start_new_session=True) as process:
        try:
            yield process
        finally:
            process.kill()


async def test_a_worker_that_is_killed_after_the_charge_charges_nobody_twice(
    sandbox: Sandbox, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    charges = SlowCharges()
    monkeypatch.setattr(provider, "charges", charges)
    await fill(sandbox, client)
    placed = await place(client, GOOD)
    with worker(sandbox) as first:
        assert charges.charged.wait(60)
        os.killpg(first.pid, signal.SIGKILL)
    charges.may_answer.set()
    with worker(sandbox, "--until-empty") as second:
        assert second.wait(60) == 0
    assert (await client.get(f"/books/orders/{placed['order']}")).json()["state"] == "paid"
    assert provider.asked == [placed["order"]] * 2
    assert len(charges) == 1
