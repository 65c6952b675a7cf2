"""Listen for wake-ups as soon as the database allows it. Until then, polling finds jobs."""

from __future__ import annotations

import asyncio
from logging import WARNING
from typing import Final

from holdfast.domain.errors import StoreUnavailable
from holdfast.observability import logs
from holdfast.runtime.backoff import Backoff
from holdfast.runtime.seam import Seam
from holdfast.stores.protocol import Listening, Store, capability
from holdfast.wakeups.protocol import Heard, Listener, Wakeup

BACKOFF_SECONDS: Final = 0.2, 10.0


async def listen(store: Store, heard: Heard, seam: Seam) -> None:
    """Call `heard` for each wake-up until this is canceled."""
    source = capability(store, Listening)
    listener: Listener | None = None
    trouble = Backoff(seam, *BACKOFF_SECONDS)
    while source is not None:
        try:
            listener = await source.listen(heard)
            heard(Wakeup())  # for what came before
            break
        except StoreUnavailable as error:
            logs.event(WARNING, "listen_failed", str(error))
        await trouble.wait()
    try:
        await asyncio.Event().wait()
    finally:
        if listener is not None:
            await listener.close()
