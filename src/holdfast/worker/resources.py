"""What handlers share while a worker runs: opened when it starts, closed when it ends."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

ResourceFunction = Callable[[], Any]


@asynccontextmanager
async def opened(functions: Mapping[str, ResourceFunction]) -> AsyncIterator[dict[str, Any]]:
    """Open the resources in the order of registration, and close them in reverse.

    A function that yields closes its resource after the `yield`, however the worker ends: no error
    is raised there. One that returns has nothing to close.
    """
    async with AsyncExitStack() as stack:
        resources: dict[str, Any] = {}
        for name, function in functions.items():
            resources[name] = await _open(stack, function)
        yield resources


async def _open(stack: AsyncExitStack, function: ResourceFunction) -> Any:
    made = function()
    if inspect.isasyncgen(made):
        value = await anext(made)
        stack.push_async_callback(anext, made, None)
        return value
    if inspect.isgenerator(made):
        value = next(made)
        stack.callback(next, made, None)
        return value
    return await made if inspect.isawaitable(made) else made
