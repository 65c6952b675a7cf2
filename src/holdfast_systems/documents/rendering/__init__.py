"""Render documents: a Typst template and data in, a PDF out."""

from holdfast_systems.documents.rendering.errors import MissingGlyphs, RenderError, RenderStopped
from holdfast_systems.documents.rendering.render import render

__all__ = ["MissingGlyphs", "RenderError", "RenderStopped", "render"]
