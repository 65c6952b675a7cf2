"""What connections know of types: a process asks about those of PostgreSQL itself once."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from holdfast.runtime.seam import Seam
from holdfast.stores.postgres.connections import Connections
from holdfast.stores.postgres.server_limits import Limits
from holdfast.stores.postgres.types import ARRAYS_USED
from tests.support.processes import turn

VALUES: dict[str, list[Any]] = {
    "bool": [True, False],
    "bytea": [b"\x00\xff"],
    "int2": [-32768],
    "int4": [1, None, 2],
    "int8": [2**63 - 1],
    "float8": [0.5],
    "timestamptz": [datetime(2026, 3, 29, tzinfo=UTC)],
    "json": ['{"a": 1}'],
    "uuid": [UUID(int=7)],
}


async def connect(url: str) -> Any:
    """A connection as the store makes them."""
    return await Connections(url, Seam(), size=1, limits=Limits(lease_seconds=30)).connect()


async def questions(connection: Any, kind: str, values: list[Any]) -> int:
    """Send an array there and back; answer how many statements that took besides its own."""
    sent: list[str] = []

    def note(query: Any) -> None:
        sent.append(query.query)

    connection.add_query_logger(note)
    assert await connection.fetchval(f"SELECT $1::{kind}[]", values) == values
    await turn()  # the driver tells at the loop's next turn
    connection.remove_query_logger(note)
    return len(sent) - 1


async def test_all_connections_but_the_first_of_a_process_ask_about_no_built_in_type(
    postgres_url: str,
) -> None:
    first, second = await connect(postgres_url), await connect(postgres_url)
    plain = await asyncpg.connect(postgres_url)
    for kind, values in VALUES.items():
        await questions(first, kind, values)
        assert await questions(second, kind, values) == 0
        assert await questions(plain, kind, values) > 0, "the driver does not ask any more"
    for connection in (first, second, plain):
        await connection.close()


async def test_the_arrays_that_are_asked_about_are_those_of_the_values_here(
    postgres_url: str,
) -> None:
    connection = await connect(postgres_url)
    names = await connection.fetch(
        "SELECT element.typname FROM pg_type AS element WHERE element.typarray = ANY ($1::oid[])",
        list(ARRAYS_USED),
    )
    assert sorted(row["typname"] for row in names) == sorted(VALUES)
    await connection.close()


@pytest.mark.parametrize("labels", [["fine"], ["good", "bad"]])
async def test_types_of_an_application_are_asked_about_on_every_connection(
    postgres_url: str, labels: list[str]
) -> None:
    """The same number may be another type in another database."""
    connections = [await connect(postgres_url) for _ in range(2)]
    names = ", ".join(f"'{label}'" for label in labels)
    await connections[0].execute(f"CREATE TYPE mood AS ENUM ({names})")
    for connection in connections:
        assert await questions(connection, "mood", labels) > 0
        await connection.close()
