"""The pages, one module per noun."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from holdfast.dashboard.pages import (
    audit,
    breakers,
    bulk,
    dead,
    job,
    jobs,
    keys,
    live,
    login,
    overview,
    queues,
    requeue,
    results,
    run,
    system_forms,
    systems,
    workers,
)

if TYPE_CHECKING:
    from holdfast.dashboard.page import Pages
    from holdfast.dashboard.site import Site

# They are matched in this order.
ALL: Final[tuple[Callable[[Site], Pages], ...]] = (
    login.pages,
    live.pages,
    overview.pages,
    jobs.pages,
    job.pages,
    requeue.pages,
    run.pages,
    results.pages,
    queues.pages,
    breakers.pages,
    workers.pages,
    audit.pages,
    keys.pages,
    system_forms.pages,  # /run would also match the page of an item
    systems.pages,
    dead.pages,
    bulk.pages,
)
