"""Work that keeps arriving while `make run` serves: a piece of each system, in turn, over HTTP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import count
from typing import Any
from uuid import uuid4

import aiohttp

from holdfast_systems.demos.convert import INVOICE, make_pdf
from holdfast_systems.demos.documents import DOCUMENTS_TARGET, record_data, worker_settings
from holdfast_systems.demos.frame import Stage
from holdfast_systems.demos.passport import BILL_OF_MATERIALS, RULES
from holdfast_systems.demos.receiver import set_answers

EVERY_SECONDS = 2.0
# So that there is something to repair, each system fails now and then.
FAILS_EVERY = 7
ANSWERS = {"order.paid": [503, 200], "order.refunded": [500]}

Send = Callable[[int], Awaitable[None]]


class Arrivals:
    """Sends work to the service, as its users do. Everything belongs to the tenant `default`."""

    def __init__(self, http: aiohttp.ClientSession, receiver: str) -> None:
        self._http = http
        self._receiver = receiver
        self._secrets: dict[str, str] = {}
        self._rules_id = ""

    async def prepare(self) -> None:
        for event_type in ANSWERS:
            name = event_type.replace(".", "-")
            body = {"url": f"{self._receiver}/hooks/{name}", "event_types": [event_type]}
            made = await self._post("/v1/subscriptions", json=body)
            self._secrets[event_type] = made["secret"]
        rules = await self._post("/passport/rules", json=RULES)
        self._rules_id = rules["id"]
        await self._post(f"/passport/rules/{self._rules_id}/publish")

    async def send(self, number: int) -> None:
        """Send the next piece of work: each system has its turn."""
        systems: list[Send] = [
            self._event, self._conversion, self._computation, self._documents, self._passport,
        ]  # fmt: skip
        turn, system = divmod(number, len(systems))
        await systems[system](turn)

    async def _event(self, turn: int) -> None:
        event_type = "order.refunded" if turn % FAILS_EVERY == 0 else "order.paid"
        name = event_type.replace(".", "-")
        answers = [*ANSWERS[event_type]]
        await set_answers(self._receiver, name, self._secrets[event_type], answers)
        payload = {"order": 1000 + turn, "cents": 1990 + 100 * turn}
        await self._post("/v1/events", json={"event_type": event_type, "payload": payload})

    async def _conversion(self, turn: int) -> None:
        text = INVOICE.replace("0042", f"{turn:04}")
        pdf = await asyncio.to_thread(make_pdf, text)
        if turn % FAILS_EVERY == 2:
            pdf = pdf[: len(pdf) // 3]  # cut off, as by a bad connection
        form = aiohttp.FormData()
        form.add_field("mapping", ("invoice", "layout", "text")[turn % 3])
        form.add_field("file", pdf, filename=f"invoice-{turn:04}.pdf")
        await self._post("/conversions", data=form)

    async def _computation(self, turn: int) -> None:
        width, depth = 16 + turn % 11, 20 + turn % 7
        inputs: dict[str, Any] = {
            "plot": [[0, 0], [width, 0], [width, depth], [0, depth]],
            "north": turn * 31 % 360,
        }
        if turn % FAILS_EVERY == 4:
            inputs["house"] = {"width_min": 60, "width_max": 80}  # on no such plot
        wanted = {"app_id": "demo", "definition": "house-fit", "version": "1.0.0"}
        await self._post("/jobs/run", json={**wanted, "inputs": inputs})

    async def _documents(self, turn: int) -> None:
        template = "receipt" if turn % FAILS_EVERY == 6 else "invoice"  # there is no receipt
        document = {"template": template, "data": record_data(100 + turn)}
        batch = {"batch": f"demo-{turn}", "documents": [document]}
        await self._post("/documents/batches", json=batch)

    async def _passport(self, turn: int) -> None:
        snapshot_id = (await self._post("/passport/snapshots", json={}))["id"]
        document = BILL_OF_MATERIALS.replace("CASE-AL-01", f"CASE-AL-{turn:02}")
        place = f"/passport/snapshots/{snapshot_id}"
        added = await self._post(f"{place}/documents?name=bill-{turn}.csv", data=document.encode())
        await self._ended(added["job_id"])
        await self._post(f"{place}/seal")
        order = {
            "passport_id": str(uuid4()),
            "snapshot_id": snapshot_id,
            "rules_id": self._rules_id,
            "build_id": f"demo-{turn}",
        }
        await self._post("/passport/versions", json=order)

    async def _ended(self, job_id: str) -> None:
        async with self._http.get(f"/v1/jobs/{job_id}/result?wait_seconds=20"):
            pass

    async def _post(self, path: str, **body: Any) -> dict[str, Any]:
        async with self._http.post(path, **body) as response:
            text = await response.text()
            if not response.ok:
                raise ConnectionError(f"POST {path}: {response.status} {text}")
            answer: dict[str, Any] = json.loads(text)
            return answer


@asynccontextmanager
async def arrivals(stage: Stage, key: str) -> AsyncIterator[Arrivals]:
    """Start what the work needs besides the service: a receiver, and a worker of documents."""
    receiver = await stage.start("live-receiver", "holdfast_systems.demos.receiver")
    salesforce = stage.services["salesforce"].address
    await stage.worker(DOCUMENTS_TARGET, name="documents", env=worker_settings(salesforce))
    headers = {"authorization": f"Bearer {key}"}
    async with aiohttp.ClientSession(stage.api.address, headers=headers) as http:
        made = Arrivals(http, receiver.address)
        await made.prepare()
        yield made


async def keep_arriving(stage: Stage, key: str, tell: Callable[[str], None]) -> None:
    """Send work until canceled. What goes wrong is told once, and does not end it."""
    told = ""
    async with arrivals(stage, key) as made:
        for number in count():
            try:
                await made.send(number)
            except (OSError, aiohttp.ClientError) as error:
                if str(error) != told:
                    told = str(error)
                    tell(told)
            await asyncio.sleep(EVERY_SECONDS)
