"""Render one document."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from holdfast import Context, ProcessCrashed, ProcessTimeout
from holdfast_systems.documents.rendering import limits
from holdfast_systems.documents.rendering.compile import compile_document
from holdfast_systems.documents.rendering.errors import RenderError, RenderStopped
from holdfast_systems.documents.rendering.fonts import font_folders

TEMPLATES = Path(__file__).parent.parent / "templates"


async def render(
    ctx: Context,
    template: str,
    data: Mapping[str, object],
    *,
    templates: Path = TEMPLATES,
    seconds_max: float = limits.RENDER_SECONDS_MAX,
) -> bytes:
    """Make a PDF. The same data and fonts give the same bytes.

    The template receives the data as JSON, never as part of its text, so nothing in it is executed.
    A rendering that gets out of hand is killed with its process, which sees no secrets.
    """
    try:
        return await ctx.run_in_process(
            compile_document,
            template_path(templates, template),
            encoded(data),
            font_folders(),
            timeout_seconds=seconds_max,
            memory_bytes_max=limits.MEMORY_BYTES_MAX,
            clean_environment=True,
        )
    except (ProcessCrashed, ProcessTimeout, MemoryError) as error:
        raise RenderStopped(f"template {template!r}: {error}") from error


def template_path(templates: Path, template: str) -> Path:
    path = templates / f"{template}.typ"
    if path not in templates.glob("*.typ"):
        raise RenderError(f"there is no template {template[:80]!r}")
    return path


def encoded(data: Mapping[str, object]) -> str:
    try:
        encoded = msgspec.json.encode(data)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise RenderError(f"the data can't be written as JSON: {error}") from error
    if len(encoded) > limits.DATA_BYTES_MAX:
        size, most = len(encoded), limits.DATA_BYTES_MAX
        raise RenderError(f"the data has {size:,} bytes; the limit is {most:,}")
    return encoded.decode()
