from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.promises.stage import Stage


@pytest.fixture
async def stage(store_url: str, tmp_path: Path) -> AsyncIterator[Stage]:
    made = Stage(store_url, tmp_path)
    try:
        yield made
    finally:
        await made.close()
