"""What handlers share while a worker runs: made at its start, closed at its end."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any

ResourceFunction = Callable[[], Any]


@asynccontextmanager
async def opened(functions: Mapping[str, ResourceFunction]) -> AsyncIterator[dict[str, Any]]:
    """Make each resource in the order of registration and close them in the opposite one.

    A function that yields is closed by going on after its `yield`; one that returns is not closed.
    """
    async with AsyncExitStack() as stack:
        resources: dict[str, Any] = {}
        for name, function in functions.items():
            resources[name] = await _open(stack, function)
        yield resources


async def _open(stack: AsyncExitStack, function: ResourceFunction) -> Any:
    if inspect.isasyncgenfunction(function):
        return await stack.enter_async_context(asynccontextmanager(function)())
    if inspect.isgeneratorfunction(function):
        return stack.enter_context(contextmanager(function)())
    made = function()
    return await made if inspect.isawaitable(made) else made
