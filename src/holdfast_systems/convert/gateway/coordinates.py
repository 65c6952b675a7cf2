"""From a PDF's own coordinates to those of the page as people see it."""

from __future__ import annotations

from typing import Any

from holdfast_systems.convert.gateway.pages import Box


class Placing:
    """One page: which part of the plane it shows, and how far it is turned clockwise."""

    def __init__(self, page: Any) -> None:
        box = page.get_bbox()
        if box[0] >= box[2] or box[1] >= box[3]:
            # The crop box lies beside the media box: nothing is to be seen, so all counts.
            box = _ordered(page.get_mediabox())
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


def _ordered(box: tuple[float, float, float, float]) -> tuple[float, float, float, float]:
    """Any two corners that lie opposite each other make a box."""
    return min(box[0], box[2]), min(box[1], box[3]), max(box[0], box[2]), max(box[1], box[3])
