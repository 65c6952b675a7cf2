"""The API and a worker in one process."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial

from fastapi import FastAPI

from holdfast import Holdfast, WorkerReport
from holdfast_systems.compute.api import make_api
from holdfast_systems.compute.app import compute

_log = logging.getLogger(__name__)


def make_app() -> FastAPI:
    lines = logging.StreamHandler()
    form = "%(asctime)s %(levelname)s %(name)s: %(message)s %(fields)s"
    lines.setFormatter(logging.Formatter(form, defaults={"fields": ""}))
    logging.basicConfig(level=logging.INFO, handlers=[lines])
    return make_api(compute, lifespan=partial(working, compute.hf))


@asynccontextmanager
async def working(hf: Holdfast, _api: FastAPI) -> AsyncIterator[None]:
    """Run a worker beside the server; if one ends, so does the other."""
    async with hf:
        worker = asyncio.create_task(hf.run_worker())
        worker.add_done_callback(_end_with_worker)
        try:
            yield
        finally:
            worker.remove_done_callback(_end_with_worker)
            worker.cancel()
            with suppress(asyncio.CancelledError):
                await worker


def _end_with_worker(worker: asyncio.Task[WorkerReport]) -> None:
    error = None if worker.cancelled() else worker.exception()
    _log.critical("the worker ended; shutting down the server", exc_info=error)
    os.kill(os.getpid(), signal.SIGTERM)
