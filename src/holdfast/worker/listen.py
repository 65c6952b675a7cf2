"""Listen for wake-ups: of the messengers, and of the database as soon as it allows it. Until then,
polling finds jobs."""

from __future__ import annotations

import asyncio
from logging import WARNING
from typing import Final

from holdfast.domain.errors import StoreUnavailable
from holdfast.observability import logs
from holdfast.runtime.backoff import Backoff
from holdfast.runtime.seam import Seam
from holdfast.stores.protocol import Listening, Store, capability
from holdfast.wakeups.messengers import Messengers
from holdfast.wakeups.protocol import Heard, Listener, Wakeup

BACKOFF_SECONDS: Final = 0.2, 10.0


async def listen(store: Store, messengers: Messengers, heard: Heard, seam: Seam) -> None:
    """Call `heard` for each wake-up until this is canceled."""
    source = capability(store, Listening)
    listeners: list[Listener] = []
    trouble = Backoff(seam, *BACKOFF_SECONDS)
    try:
        listeners += await messengers.listen(heard)
        while source is not None:
            try:
                if (listener := await source.listen(heard)) is not None:
                    listeners.append(listener)
                heard(Wakeup())  # for what came before
                break
            except StoreUnavailable as error:
                logs.event(WARNING, "listen_failed", str(error))
            await trouble.wait()
        await asyncio.Event().wait()
    finally:
        await asyncio.gather(*(listener.close() for listener in listeners))
