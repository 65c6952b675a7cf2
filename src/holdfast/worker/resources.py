"""What handlers share while a worker runs: made at its start, closed at its end."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

ResourceFunction = Callable[[], Any]


@asynccontextmanager
async def opened(functions: Mapping[str, ResourceFunction]) -> AsyncIterator[dict[str, Any]]:
    """Make each resource in the order of registration and close them in the opposite one.

    A function that yields is closed by going on after its `yield`, whatever ended the worker; one
    that returns is not closed.
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
        stack.push_async_callback(_go_on, made)
        return value
    if inspect.isgenerator(made):
        value = next(made)
        stack.callback(next, made, None)
        return value
    return await made if inspect.isawaitable(made) else made


async def _go_on(generator: AsyncIterator[Any]) -> None:
    """Run what follows the `yield`, however the worker ended: no error is thrown in there."""
    await anext(generator, None)
