"""The shop's tables, and its connections to the database that also keeps its jobs."""

from __future__ import annotations

import os
from datetime import datetime
from decimal import Decimal
from uuid import UUID

from sqlalchemy import CheckConstraint, ForeignKey, Numeric, UniqueConstraint, func, select
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.pool import NullPool

URL = os.environ.get("SHOP_DATABASE_URL", "sqlite:///shop.db")

new_session = async_sessionmaker(expire_on_commit=False)


class Base(DeclarativeBase):
    pass


class Product(Base):
    __tablename__ = "products"
    __table_args__ = (
        UniqueConstraint("shop", "name"),
        CheckConstraint("stock >= 0", name="products_stock"),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    shop: Mapped[str]
    name: Mapped[str]
    price: Mapped[Decimal] = mapped_column(Numeric(10, 2))
    stock: Mapped[int]


class Order(Base):
    __tablename__ = "orders"

    id: Mapped[UUID] = mapped_column(primary_key=True)
    shop: Mapped[str]
    product_id: Mapped[int] = mapped_column(ForeignKey("products.id"))
    quantity: Mapped[int]
    email: Mapped[str]
    state: Mapped[str] = mapped_column(default="placed")  # placed, paid or declined
    charge: Mapped[str | None]  # the payment provider's name for it


class Audit(Base):
    """What went wrong with an order, once for each failed attempt."""

    __tablename__ = "audit"

    id: Mapped[int] = mapped_column(primary_key=True)
    order_id: Mapped[UUID] = mapped_column(ForeignKey("orders.id"))
    attempt: Mapped[int]
    code: Mapped[str]
    next_state: Mapped[str]
    at: Mapped[datetime] = mapped_column(server_default=func.now())


def use(url: str) -> None:
    """Connect all sessions to this database."""
    scheme, _, rest = url.partition("://")
    driver = {"sqlite": "sqlite+aiosqlite", "postgresql": "postgresql+asyncpg"}[scheme]
    # Tests use one event loop each, and a pooled connection belongs to the loop that opened it.
    new_session.configure(bind=create_async_engine(f"{driver}://{rest}", poolclass=NullPool))


async def create_tables() -> None:
    async with new_session() as session, session.begin():
        connection = await session.connection()
        await connection.run_sync(Base.metadata.create_all)


async def product_named(session: AsyncSession, shop: str, name: str) -> Product | None:
    return await session.scalar(select(Product).where(Product.shop == shop, Product.name == name))


use(URL)
