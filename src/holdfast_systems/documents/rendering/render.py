"""Render one document."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import msgspec

from holdfast_systems.documents.rendering.children import Children
from holdfast_systems.documents.rendering.errors import RenderError
from holdfast_systems.documents.rendering.fonts import font_folders
from holdfast_systems.documents.rendering.limits import DATA_BYTES_MAX, RENDER_SECONDS_MAX

TEMPLATES = Path(__file__).parent.parent / "templates"


def render(
    template: str,
    data: Mapping[str, object],
    *,
    templates: Path = TEMPLATES,
    seconds_max: float = RENDER_SECONDS_MAX,
) -> bytes:
    """Make a PDF. The same data and fonts give the same bytes.

    The template receives the data as JSON, never as part of its text, so nothing in it is executed.
    This call blocks: run it in a thread.
    """
    path = templates / f"{template}.typ"
    if path not in templates.glob("*.typ"):
        raise RenderError(f"there is no template {template[:80]!r}")
    try:
        encoded = msgspec.json.encode(data)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise RenderError(f"the data can't be written as JSON: {error}") from error
    if len(encoded) > DATA_BYTES_MAX:
        raise RenderError(f"the data has {len(encoded):,} bytes; the limit is {DATA_BYTES_MAX:,}")
    return _children().render(path, encoded, seconds_max)


@cache
def _children() -> Children:
    return Children(font_folders())
