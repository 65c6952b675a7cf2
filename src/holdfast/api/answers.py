"""Answers as JSON, encoded by msgspec."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from starlette.responses import Response

encode: Final = msgspec.json.Encoder().encode


def answer(body: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(encode(body), status, headers=headers, media_type="application/json")
