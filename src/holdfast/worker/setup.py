"""What the parts of one worker share."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.runtime.seam import Seam
from holdfast.settings import Settings
from holdfast.stores.protocol import Store
from holdfast.worker.slots import Slots


@dataclass(frozen=True, slots=True)
class Setup:
    """`names` are the jobs that have a handler here. With `horizon_seconds`, the worker ends when
    nothing runs and nothing becomes due within them."""

    worker_id: str
    store: Store
    names: tuple[str, ...]
    slots: Slots
    settings: Settings
    seam: Seam
    suspects_only: bool = False
    horizon_seconds: float | None = None
