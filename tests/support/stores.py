"""The store behind an object, as one that has every capability."""

from __future__ import annotations

from holdfast import Holdfast
from holdfast.stores.protocol import FullStore, require


async def full_store(hf: Holdfast) -> FullStore:
    return require(await hf._store(), FullStore, "do everything")
