"""Render documents: a Typst template and data in, a PDF out.

RenderError(Permanent)          an unknown template, data that does not fit it; not tried again
MissingGlyphs(RenderError)      no font has a character of the document, which would be a box
RenderStopped(Transient)        it took too long, or its process was killed; tried again
"""

from holdfast_systems.documents.rendering.errors import (
    MissingGlyphs,
    RenderError,
    RenderStopped,
)
from holdfast_systems.documents.rendering.render import render, template_names

__all__ = ["MissingGlyphs", "RenderError", "RenderStopped", "render", "template_names"]
