"""The jobs of a small shop, for the pictures."""

from __future__ import annotations

import asyncio
import random

from holdfast import Context, Holdfast, Permanent, Retry, Transient

hf = Holdfast()
TENANTS = ("acme", "globex", "initech")


@hf.job(queue="mail", timeout_seconds=10, retry=Retry.exponential(max_attempts=2))
async def send_receipt(order: int) -> None:
    await asyncio.sleep(random.uniform(0.004, 0.03))
    if order % 97 == 0:
        raise Permanent(f"no such address: customer {order}", code="BAD_ADDRESS")
    if order % 61 == 0:
        raise Permanent(f"order {order} has no receipt", code="NO_RECEIPT")


@hf.job(queue="images", timeout_seconds=30)
async def resize(order: int, width: int = 800) -> dict[str, int]:
    await asyncio.sleep(random.uniform(0.05, 0.4))
    if order % 53 == 0:
        raise Permanent(f"image {order}.png is not an image", code="BAD_IMAGE")
    return {"width": width}


@hf.job(queue="reports", timeout_seconds=60, retry=Retry.none())
async def monthly_report(shop: int) -> None:
    await asyncio.sleep(random.uniform(0.5, 2))
    if shop % 7 == 0:
        raise Transient(f"the books of shop {shop} are locked", code="BOOKS_LOCKED")


@hf.job(queue="payments", breaker="payments.example.com", timeout_seconds=20)
async def charge(order: int, cents: int) -> dict[str, int]:
    await asyncio.sleep(random.uniform(0.1, 0.3))
    return {"order": order, "cents": cents}


@hf.job(queue="payments", timeout_seconds=20, retry=Retry.exponential(max_attempts=4, base=0.5))
async def refund(ctx: Context, order: int, cents: int, reason: str) -> None:
    """The bank needs a moment, and then says no."""
    await asyncio.sleep(random.uniform(0.2, 0.6))
    if ctx.attempt < 3:
        raise Transient("the bank did not answer within 500 ms", code="BANK_TIMEOUT")
    raise Permanent(f"the bank refused: order {order} was refunded before", code="REFUSED")


async def fill(seconds: float, share: float) -> None:
    """Enqueue in waves, like a busy shop, for this many seconds; `share` is of a very busy one."""
    order = 0
    async with hf:
        for second in range(int(seconds * 2)):
            wave = int((60 + 50 * (second % 9)) * share)
            calls = [
                send_receipt.options(tenant=_tenant(order + each)).call(order + each)
                for each in range(wave)
            ]
            calls += [resize.call(order + each) for each in range(max(int(14 * share), 1))]
            calls += [monthly_report.call(order + each) for each in range(max(int(2 * share), 1))]
            calls.append(charge.call(order, 100 + 7 * second))
            if second % 4 == 0:
                calls.append(monthly_report.options(delay_seconds=3600).call(second))
            await hf.enqueue_many(calls)
            order += wave
            await asyncio.sleep(0.5)


def _tenant(order: int) -> str:
    return TENANTS[order % len(TENANTS)]


if __name__ == "__main__":
    import sys

    asyncio.run(fill(float(sys.argv[1]), float(sys.argv[2])))
