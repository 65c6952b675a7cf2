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


def template_names() -> list[str]:
    return sorted(path.stem for path in TEMPLATES.glob("*.typ"))


def render(
    template: str,
    data: Mapping[str, object],
    *,
    templates: Path = TEMPLATES,
    seconds_max: float = RENDER_SECONDS_MAX,
) -> bytes:
    """Make a PDF; the same data and fonts give the same bytes.

    The data reach the template as JSON, never as a part of its text, so nothing in them is run.
    This blocks for as long as it takes: call it in a thread.
    """
    path = templates / f"{template}.typ"
    if path not in templates.glob("*.typ"):
        raise RenderError(f"there is no template {template[:80]!r}")
    try:
        encoded = msgspec.json.encode(data)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise RenderError(f"the data can't be written as JSON: {error}") from error
    if len(encoded) > DATA_BYTES_MAX:
        raise RenderError(f"the data have {len(encoded):,} bytes; {DATA_BYTES_MAX:,} are allowed")
    return _children().render(path, encoded, seconds_max)


@cache
def _children() -> Children:
    return Children(font_folders())
