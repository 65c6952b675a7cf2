"""The shop's jobs: `holdfast worker shop.jobs:hf`."""

from __future__ import annotations

import asyncio
import csv
import logging
import os
from contextvars import ContextVar
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

from pydantic import BaseModel, Field
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from holdfast import Breaker, CallNext, Context, Holdfast, Permanent, Retry
from shop import database, payments
from shop.database import Audit, Order, Product
from shop.report import Report, Sale, summarize

hf = Holdfast(database.URL)
logger = logging.getLogger("shop")
OUTBOX = Path(os.environ.get("SHOP_OUTBOX", "outbox"))
IMPORT_PAUSE_SECONDS = float(os.environ.get("SHOP_IMPORT_PAUSE_SECONDS", "0"))  # to watch it

current_session: ContextVar[AsyncSession] = ContextVar("session")


class Payment(BaseModel):
    order_id: UUID
    card: str = Field(min_length=4)
    amount: Decimal


class Receipt(BaseModel):
    order_id: UUID
    charge: str
    amount: Decimal


@hf.middleware
async def session_per_run(ctx: Context, call_next: CallNext) -> Any:
    async with database.new_session() as session:
        current_session.set(session)
        return await call_next()


@hf.on_failure
def count_failure(ctx: Context, error: BaseException) -> None:
    logger.warning("%s of shop %s failed: %s", ctx.name, ctx.tenant, type(error).__name__)


@hf.job(
    queue="payments",
    retry=Retry.exponential(max_attempts=8, base=5).limit("PROVIDER_ERROR", 4),
    timeout_seconds=60,
    breaker=Breaker("payments"),
)
async def charge(ctx: Context, payment: Payment) -> Receipt:
    session = current_session.get()
    try:
        charged = await payments.charge(payment.order_id, payment.card, payment.amount)
    except Exception as error:
        await note_failure(ctx, payment.order_id, error)
        raise
    receipt = Receipt(order_id=payment.order_id, charge=charged, amount=payment.amount)
    ctx.set_result(receipt)
    async with ctx.completing(session):
        order = await session.get_one(Order, payment.order_id)
        order.state, order.charge = "paid", charged
        await send_receipt.options(connection=session).enqueue(receipt, order.email)
    return receipt


async def note_failure(ctx: Context, order_id: UUID, error: Exception) -> None:
    """Record the failed attempt; if it was the last one, put the goods back on the shelf."""
    session = current_session.get()
    judgment = ctx.judge(error)
    async with ctx.failing(error, session):
        session.add(
            Audit(
                order_id=order_id,
                attempt=ctx.attempt,
                code=judgment.code,
                next_state=judgment.state,
            )
        )
        if judgment.state.ended:
            order = await session.get_one(Order, order_id)
            product = await session.get_one(Product, order.product_id, with_for_update=True)
            order.state = "declined"
            product.stock += order.quantity


@hf.job(queue="mail")
def send_receipt(ctx: Context, receipt: Receipt, email: str) -> str:
    """Write the mail to a folder. Its name makes a second run harmless."""
    OUTBOX.mkdir(exist_ok=True)
    path = OUTBOX / f"{receipt.order_id}.txt"
    path.write_text(
        f"To: {email}\n\nThank you! {ctx.tenant} charged {receipt.amount} ({receipt.charge}).\n"
    )
    return str(path)


@hf.job
async def import_products(ctx: Context, text: str) -> int:
    """Import lines of `name,price,stock`. Safe to run again: a product is known by its name."""
    session = current_session.get()
    rows = list(csv.reader(text.splitlines()))
    for number, row in enumerate(rows, 1):
        try:
            name, price, stock = row
            wanted = Product(shop=ctx.tenant, name=name, price=Decimal(price), stock=int(stock))
        except (ValueError, ArithmeticError) as error:
            raise Permanent(f"line {number} is not name,price,stock", code="BAD_LINE") from error
        async with session.begin():
            product = await database.product_named(session, ctx.tenant, name)
            if product is None:
                session.add(wanted)
            else:
                product.price, product.stock = wanted.price, wanted.stock
        await ctx.progress({"done": number, "of": len(rows)})
        await asyncio.sleep(IMPORT_PAUSE_SECONDS)
    return len(rows)


@hf.job
async def report_sales(ctx: Context) -> Report:
    """Summarize the sales in a process of its own: the loop stays free for other jobs."""
    session = current_session.get()
    found = await session.execute(
        select(Product.name, Order.quantity, Product.price)
        .join(Order, Order.product_id == Product.id)
        .where(Order.shop == ctx.tenant, Order.state == "paid")
    )
    sales = [Sale(name, quantity, price) for name, quantity, price in found]
    return await ctx.run_in_process(summarize, sales, timeout_seconds=30, clean_environment=True)
