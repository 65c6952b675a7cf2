"""The client of the payment provider."""

from __future__ import annotations

import os
from decimal import Decimal
from uuid import UUID

import aiohttp

from holdfast import Permanent, Transient

URL = os.environ.get("SHOP_PAYMENTS_URL", "http://127.0.0.1:8001")


async def charge(order_id: UUID, card: str, amount: Decimal) -> str:
    """Charge the card and return the provider's name for the charge.

    The order's id is the idempotency key: however often this is called, the card is charged once.
    """
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as client,
            client.post(
                f"{URL}/charges",
                json={"card": card, "amount": str(amount)},
                headers={"Idempotency-Key": str(order_id)},
            ) as answer,
        ):
            if answer.status == 402:
                raise Permanent("the card was declined", code="CARD_DECLINED")
            if answer.status != 201:
                raise Transient(f"the provider answered {answer.status}", code="PROVIDER_ERROR")
            return str((await answer.json())["id"])
    except (aiohttp.ClientConnectionError, TimeoutError) as error:
        raise Transient("the provider can't be reached", code="PROVIDER_DOWN") from error
