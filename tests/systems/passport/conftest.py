"""A pipeline on a fresh database, run inside of the test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.systems.passport.line import Line


@pytest.fixture
async def line(store_url: str) -> AsyncIterator[Line]:
    line = Line(store_url)
    await line.hf.migrate()
    async with line.hf:
        yield line
