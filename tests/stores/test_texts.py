"""Every text that is accepted can be stored, by both databases."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from holdfast import BadArguments, Check, ConfigurationError, Filter, Holdfast, Severity
from holdfast.domain.limits import KEY_BYTES_MAX, NAME_CHARS_MAX, TAG_CHARS_MAX, TAGS_MAX
from tests.promises.stage import both_stores
from tests.support.examining import the
from tests.support.pooling import needs_a_session
from tests.support.running import QUICK

pytestmark = pytest.mark.both_postgres

EURO = "5 € 𝄞"


def noise(chars: int) -> str:
    """Characters of four bytes each, which no database can make smaller."""
    return "".join(chr(random.Random(place).randrange(0x20000, 0x2A6D0)) for place in range(chars))


@both_stores
async def test_the_longest_names_and_keys_are_stored_and_longer_ones_refused(
    store_url: str,
) -> None:
    name, key = noise(NAME_CHARS_MAX), noise(KEY_BYTES_MAX // 4)
    async with Holdfast(store_url, **QUICK) as hf:

        @hf.job(name=name, queue=name, breaker=name)
        async def long(text: str) -> str:
            return text

        longest = long.options(
            tenant=name,
            correlation_id=name,
            idempotency_key=key,
            tags=[noise(TAG_CHARS_MAX)] * TAGS_MAX,
        )
        job = await longest.enqueue(EURO)
        assert (await longest.enqueue(EURO)).id == job.id
        await hf.run_worker(until_empty=True)
        assert await hf.result(job.id) == EURO
        with pytest.raises(BadArguments, match="idempotency_key has 1504 bytes in UTF-8"):
            long.options(idempotency_key=key + "𝄞")


@both_stores
@pytest.mark.parametrize("text", ["a\0b", "\ud800", 5], ids=["nul", "lone surrogate", "number"])
async def test_a_text_that_no_job_can_have_is_not_looked_for(store_url: str, text: Any) -> None:
    async with Holdfast(store_url, **QUICK) as hf:
        for name in ("queue", "name", "tenant", "tag", "correlation_id", "error_code"):
            with pytest.raises(BadArguments, match=name):
                await hf.jobs.list(Filter(**{name: text}))
        with pytest.raises(BadArguments, match="tenant"):
            await hf.jobs.counts(tenant=text)


@pytest.fixture(params=["LATIN1", "SQL_ASCII"])
async def narrow_url(request: pytest.FixtureRequest, postgres_url: str) -> AsyncIterator[str]:
    """A database in which not every text can be stored."""
    database = f"narrow_{request.param}_{postgres_url.rpartition('/')[2]}".lower()
    connection = await asyncpg.connect(postgres_url)
    try:
        await connection.execute(
            f"CREATE DATABASE {database} ENCODING '{request.param}' LOCALE 'C' TEMPLATE template0"
        )
        yield f"{postgres_url.rpartition('/')[0]}/{database}"
        await connection.execute(f"DROP DATABASE {database} WITH (FORCE)")
    finally:
        await connection.close()


async def test_a_database_that_can_not_store_every_text_is_refused(narrow_url: str) -> None:
    hf = Holdfast(narrow_url)
    with pytest.raises(ConfigurationError, match=r"encoding (LATIN1|SQL_ASCII).*CREATE DATABASE"):
        await hf.migrate()
    with pytest.raises(ConfigurationError, match="which can't store all text"):
        await hf.jobs.counts()
    found = the(await hf.examine(), Check.ENCODING)
    assert found.severity is Severity.CRITICAL
    assert "TEMPLATE template0" in (found.command or "")
    await hf.close()


@needs_a_session
async def test_the_engine_speaks_utf_8_whatever_a_database_and_an_address_say(
    postgres_url: str,
) -> None:
    connection = await asyncpg.connect(postgres_url)
    database = postgres_url.rpartition("/")[2]
    await connection.execute(f"ALTER DATABASE {database} SET client_encoding = 'LATIN1'")
    await connection.close()
    url = postgres_url + "?client_encoding=LATIN1"
    await Holdfast(url).migrate()
    async with Holdfast(url, **QUICK) as hf:

        @hf.job
        async def echo(text: str) -> str:
            return text

        job = await echo.options(tenant=EURO).enqueue(EURO)
        assert (await hf.run_worker(until_empty=True)).succeeded == 1
        assert (await hf.result(job.id), (await hf.get(job.id)).tenant) == (EURO, EURO)
        async with hf.transaction() as lent:
            assert await lent.fetchval("SELECT $1::text", EURO) == EURO
