"""The app whose dashboard is measured."""

from __future__ import annotations

from holdfast import Holdfast

hf = Holdfast()


@hf.job(timeout_seconds=60)
async def nothing(number: int) -> None: ...
