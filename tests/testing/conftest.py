"""An object to put into sandboxes, and the servers that these run on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from holdfast import Holdfast
from tests.support.postgres import Databases


@pytest.fixture
async def hf(tmp_path: Path) -> AsyncIterator[Holdfast]:
    async with Holdfast(f"sqlite:///{tmp_path / 'own.db'}") as app:
        yield app


@pytest.fixture
def idle_hf(tmp_path: Path) -> Holdfast:
    """For tests without an event loop: it opens nothing outside of its sandboxes."""
    return Holdfast(f"sqlite:///{tmp_path / 'own.db'}")


@pytest.fixture
def postgres_server(postgres_databases: Callable[[str], Databases]) -> str:
    return postgres_databases("pg15").url("postgres")


@pytest.fixture(params=["sqlite", "pg15"])
def server(request: pytest.FixtureRequest) -> str | None:
    """The URL that a sandbox gets."""
    if request.param == "sqlite":
        return None
    url: str = request.getfixturevalue("postgres_server")
    return url
