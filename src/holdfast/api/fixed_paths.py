"""Call routes with a fixed path directly.

Starlette tries the routes one by one, and FastAPI then resolves parameters and enters exit stacks
for each request. For short requests, that takes longer than everything else together.
"""

from __future__ import annotations

from collections.abc import Iterable

from starlette.requests import Request
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.api.callers import Guarded
from holdfast.api.failures import answer_error


class FixedPaths:
    """ASGI middleware in front of the router, which gets all other requests."""

    def __init__(self, app: ASGIApp, routes: Iterable[BaseRoute]) -> None:
        self._app = app
        self._routes = {
            (method, route.path): (route, route.answer)
            for route in routes
            if isinstance(route, Guarded) and route.answer and not route.param_convertors
            for method in route.methods or ()
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = None
        if scope["type"] == "http" and not scope.get("root_path"):
            found = self._routes.get((scope["method"], scope["path"]))
        if found is None:
            await self._app(scope, receive, send)
            return
        scope["route"], answer = found
        request = Request(scope, receive, send)
        try:
            response = await answer(request)
        except Exception as error:
            response = await answer_error(request, error)
        await response(scope, receive, send)
