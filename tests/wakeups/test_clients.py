"""What an operator reads when a broker is away: one warning, and nothing of the broker's client."""

from __future__ import annotations

import asyncio
import gc
import json
import signal
import warnings
from pathlib import Path

import pytest

from holdfast.messengers import RabbitMQ
from tests.promises.stage import Stage
from tests.support.postgres import free_port
from tests.support.processes import wait_until
from tests.support.proxy import Proxy

pytestmark = pytest.mark.heavy

ATTEMPTS = 4
URLS = [
    "amqps://app:secret@127.0.0.1:{port}/",  # nobody speaks TLS: its client logs an error each time
    "servicebus://app:secret@127.0.0.1:{port}/jobs?emulator=true",
]


@pytest.mark.parametrize("url", URLS, ids=["rabbitmq", "servicebus"])
async def test_a_broker_that_is_away_is_one_line_in_the_log_of_a_worker(
    local_url: str, tmp_path: Path, url: str
) -> None:
    stage = Stage(local_url, tmp_path)
    with Proxy(free_port()) as road:
        try:
            worker = stage.worker(
                "--log-level=info",
                environment={"HOLDFAST_MESSENGERS": url.format(port=road.port)},
            )
            await wait_until(lambda: road.refused > ATTEMPTS, lambda: worker.text)
            worker.signal(signal.SIGTERM)
            await worker.ended()
        finally:
            await stage.close()
    lines = [json.loads(line) for line in worker.text.splitlines()]
    assert [line for line in lines if line["event"] == "log"] == []
    told = [line["event"] for line in lines if line["level"] not in ("debug", "info")]
    assert told == ["messenger_lost"]


async def test_a_connection_that_never_opened_leaves_nothing_to_the_garbage_collector() -> None:
    """The collector runs on any thread, where the client could not close the connection."""
    with Proxy(free_port()) as road, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        gc.collect()
        gc.disable()
        try:
            messenger = RabbitMQ(f"amqp://127.0.0.1:{road.port}/")
            messenger.connect()
            await wait_until(lambda: road.refused > ATTEMPTS, "tried again")
            await asyncio.to_thread(gc.collect)
        finally:
            gc.enable()
        await messenger.close()
    assert [str(each.message) for each in caught if "never awaited" in str(each.message)] == []
