"""How a rendering fails; a handler that lets these through ends as they say."""

from __future__ import annotations

from holdfast import Permanent, Transient


class RenderError(Permanent):
    default_code = "RENDER_ERROR"


class MissingGlyphs(RenderError):
    default_code = "MISSING_GLYPHS"


class RenderStopped(Transient):
    default_code = "RENDER_STOPPED"
