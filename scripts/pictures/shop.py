"""The jobs of a small shop, for the pictures."""

from __future__ import annotations

import asyncio
import random

from holdfast import Holdfast, Permanent, Retry, Transient

hf = Holdfast()


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


async def fill(seconds: float) -> None:
    """Enqueue in waves, like a busy shop, for this many seconds."""
    order = 0
    async with hf:
        for second in range(int(seconds * 2)):
            wave = 60 + 50 * (second % 9)
            calls = [send_receipt.call(order + number) for number in range(wave)]
            calls += [resize.call(order + number) for number in range(14)]
            calls += [monthly_report.call(order + number) for number in range(2)]
            if second % 4 == 0:
                calls.append(monthly_report.options(delay_seconds=3600).call(second))
            await hf.enqueue_many(calls)
            order += wave
            await asyncio.sleep(0.5)


if __name__ == "__main__":
    import sys

    asyncio.run(fill(float(sys.argv[1])))
