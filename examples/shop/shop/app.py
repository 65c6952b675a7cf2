"""The shop's web server: `uvicorn shop.app:app`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import HTMLResponse, JSONResponse, StreamingResponse
from pydantic import BaseModel, Field
from sqlalchemy import select

from holdfast import Job, JobNotFound, WrongState
from shop import database
from shop.database import Order, Product
from shop.jobs import Payment, charge, hf, import_products, report_sales
from shop.report import Report

PAGE = Path(__file__).with_name("page.html")


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    await hf.migrate()
    await database.create_tables()
    async with hf:
        yield


app = FastAPI(title="Shop", lifespan=lifespan)


@app.exception_handler(JobNotFound)
async def not_found(request: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"detail": "there is no such job"}, 404)


@app.exception_handler(WrongState)
async def conflict(request: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"detail": str(error)}, 409)


class NewOrder(BaseModel):
    product: str
    quantity: int = Field(ge=1, le=1000)
    email: str
    card: str = Field(min_length=4)


@app.get("/", response_class=HTMLResponse)
def page() -> str:
    return PAGE.read_text(encoding="utf-8")


@app.post("/{shop}/orders", status_code=202)
async def place_order(shop: str, order: NewOrder) -> dict[str, str]:
    """Take the goods from the shelf, write the order and enqueue its payment: all, or nothing."""
    async with database.new_session() as session, session.begin():
        found = select(Product).where(Product.shop == shop, Product.name == order.product)
        product = await session.scalar(found.with_for_update())
        if product is None:
            raise HTTPException(404, "there is no such product")
        if product.stock < order.quantity:
            raise HTTPException(409, f"only {product.stock} left")
        product.stock -= order.quantity
        order_id = hf.new_id()
        session.add(
            Order(
                id=order_id,
                shop=shop,
                product_id=product.id,
                quantity=order.quantity,
                email=order.email,
            )
        )
        await session.flush()
        amount = product.price * order.quantity
        payment = Payment(order_id=order_id, card=order.card, amount=amount)
        job = await hf.for_tenant(shop).enqueue(charge.options(connection=session), payment)
    return {"order": str(order_id), "job": str(job.id)}


@app.get("/{shop}/orders/{order_id}")
async def show_order(shop: str, order_id: UUID) -> dict[str, Any]:
    async with database.new_session() as session:
        order = await session.get(Order, order_id)
        if order is None or order.shop != shop:
            raise HTTPException(404, "there is no such order")
        return {"state": order.state, "charge": order.charge}


@app.get("/{shop}/products")
async def list_products(shop: str) -> list[dict[str, Any]]:
    async with database.new_session() as session:
        found = await session.scalars(
            select(Product).where(Product.shop == shop).order_by(Product.name)
        )
        return [{"name": each.name, "price": each.price, "stock": each.stock} for each in found]


@app.post("/{shop}/imports", status_code=202)
async def start_import(shop: str, request: Request) -> dict[str, str]:
    text = (await request.body()).decode()
    job = await hf.for_tenant(shop).enqueue(import_products, text)
    return {"job": str(job.id)}


@app.get("/{shop}/report")
async def report(shop: str) -> Report:
    tenant = hf.for_tenant(shop)
    job = await tenant.enqueue(report_sales)
    return await tenant.result(job, timeout_seconds=30)


@app.get("/{shop}/jobs/{job_id}")
async def show_job(shop: str, job_id: UUID) -> dict[str, Any]:
    return shown(await hf.for_tenant(shop).get(job_id))


@app.post("/{shop}/jobs/{job_id}/cancel")
async def cancel_job(shop: str, job_id: UUID) -> dict[str, Any]:
    tenant = hf.for_tenant(shop)
    return shown(await tenant.cancel(job_id, by="the shop's page", because="the user said stop"))


@app.get("/{shop}/jobs/{job_id}/events")
async def watch_job(shop: str, job_id: UUID) -> StreamingResponse:
    """Send the job's progress to the browser until it ends, as server-sent events."""
    tenant = hf.for_tenant(shop)
    job = await tenant.get(job_id)

    async def events(job: Job) -> AsyncIterator[str]:
        sent = None
        while True:
            if (text := json.dumps(shown(job))) != sent:
                yield f"data: {text}\n\n"
                sent = text
            if job.state.ended:
                return
            await asyncio.sleep(0.2)
            job = await tenant.get(job.id)

    return StreamingResponse(events(job), media_type="text/event-stream")


def shown(job: Job) -> dict[str, Any]:
    """What a customer may see: of an error, the first line, and not where in the code it was."""
    error = job.last_error and job.last_error["text"].partition("\n")[0]
    return {
        "id": str(job.id),
        "name": job.name,
        "state": job.state,
        "progress": job.progress,
        "error": error,
    }
