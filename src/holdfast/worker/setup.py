"""What the parts of one worker share."""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast.runtime.seam import Seam
from holdfast.settings import Settings
from holdfast.stores.protocol import Store
from holdfast.wakeups.messengers import Messengers
from holdfast.worker.escorts import Escorts
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
    messengers: Messengers
    suspects_only: bool = False
    horizon_seconds: float | None = None
    escorts: Escorts = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "escorts", Escorts(self))
