"""Map a PDF's own coordinates to those of the visible page."""

from __future__ import annotations

from typing import Any

from holdfast_systems.convert.gateway.pages import Box


class Placing:
    """The part of the plane that a page shows, and its clockwise rotation."""

    def __init__(self, page: Any) -> None:
        box = page.get_bbox()
        if box[0] >= box[2] or box[1] >= box[3]:
            # The crop box is outside of the media box: nothing is visible, so use the whole page.
            # It may be given by any two opposite corners.
            x1, y1, x2, y2 = page.get_mediabox()
            box = min(x1, x2), min(y1, y2), max(x1, x2), max(y1, y2)
        self._left, self._bottom, self._right, self._top = box
        self._rotation: int = page.get_rotation()

    @property
    def size(self) -> tuple[float, float]:
        width, height = self._right - self._left, self._top - self._bottom
        return (height, width) if self._rotation in (90, 270) else (width, height)

    def box(self, left: float, bottom: float, right: float, top: float) -> Box:
        match self._rotation:
            case 90:
                return Box(bottom - self._bottom, left - self._left,
                           top - self._bottom, right - self._left)  # fmt: skip
            case 180:
                return Box(self._right - right, bottom - self._bottom,
                           self._right - left, top - self._bottom)  # fmt: skip
            case 270:
                return Box(self._top - top, self._right - right,
                           self._top - bottom, self._right - left)  # fmt: skip
        return Box(left - self._left, self._top - top, right - self._left, self._top - bottom)
