"""A small company whose jobs are in every state, and its dashboard on a real server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from holdfast import Context, Holdfast, Permanent, Retry
from holdfast.api import make_api
from holdfast.api.server import make_server
from holdfast.dashboard import make_pages
from tests.support.api import serving
from tests.support.running import QUICK

HOSTILE: Final = (
    "<script>window.hacked=1</script><img src=x onerror=window.hacked=1>'\"\u202e\x1b[31m"
)
DEAD: Final = 12


@dataclass
class Stage:
    """The jobs to look at, by what they are an example of."""

    hf: Holdfast
    database_url: str
    url: str = ""
    ids: dict[str, UUID] = field(default_factory=dict)


def make_app(url: str, **options: Any) -> Holdfast:
    hf = Holdfast(url, **(QUICK | options))

    @hf.job(queue="mail", timeout_seconds=10)
    async def send_receipt(ctx: Context, order: int, note: str = "") -> dict[str, Any]:
        if order < 0:
            raise Permanent(f"no such address: customer {-order}", code="BAD_ADDRESS")
        return {"order": order, "note": note}

    @hf.job(queue="reports", timeout_seconds=60, retry=Retry.none())
    async def report(ctx: Context, shop: int) -> list[dict[str, Any]]:
        if shop == 0:
            raise RuntimeError(HOSTILE)
        return [{"shop": shop, "sales": 9007199254740993, "rate": 0.1}]

    return hf


async def fill(hf: Holdfast) -> dict[str, UUID]:
    """Jobs that succeeded, failed for two causes, were canceled, or wait for later or for now."""
    mail, report = (hf._functions[name] for name in ("send_receipt", "report"))
    ids = {
        "succeeded": (await mail.enqueue(1, HOSTILE)).id,
        "failed": (await report.enqueue(0)).id,
        "table": (await report.enqueue(7)).id,
    }
    await hf.enqueue_many([mail.call(-each) for each in range(1, DEAD + 1)])
    await hf.run_due()
    ids["later"] = (await mail.options(delay_seconds=3600).enqueue(2)).id
    ids["canceled"] = (await mail.options(delay_seconds=60).enqueue(3)).id
    await hf.cancel(ids["canceled"], by="ann", because="wrong order")
    ids["queued"] = (await mail.enqueue(4)).id
    return ids


@asynccontextmanager
async def on_stage(url: str, **options: Any) -> AsyncIterator[Stage]:
    """Fill a fresh database and serve its dashboard, without a worker."""
    stage = Stage(make_app(url, **options), url)
    async with stage.hf:
        stage.ids = await fill(stage.hf)
        async with serving(make_server(make_api(stage.hf, pages=make_pages))) as port:
            stage.url = f"http://127.0.0.1:{port}"
            yield stage
