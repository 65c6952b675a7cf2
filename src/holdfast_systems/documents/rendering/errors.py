"""Rendering errors. A handler lets them through, and they decide whether the job is retried.

RenderError(Permanent)          an unknown template, or data that doesn't fit it
  MissingGlyphs                 no font has a character of the document; it would print as a box
RenderStopped(Transient)        it took too long, or its process was killed
"""

from holdfast import Permanent, Transient


class RenderError(Permanent):
    default_code = "RENDER_ERROR"


class MissingGlyphs(RenderError):
    default_code = "MISSING_GLYPHS"


class RenderStopped(Transient):
    default_code = "RENDER_STOPPED"
