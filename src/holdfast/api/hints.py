"""What `/` answers if the dashboard is not installed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from holdfast.api.service import Service

HINT: Final = "The dashboard needs an extra package. Run: pip install 'holdfast[dashboard]'\n"


def make_hint(_service: Service) -> Sequence[BaseRoute]:
    return [Route("/", _answer, methods=["GET"], include_in_schema=False)]


async def _answer(_request: Request) -> Response:
    return PlainTextResponse(HINT, 404)
