"""The sheet: its size, colors and scale, and how to draw lines and labels on it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from holdfast_systems.compute.appserver.geometry import Point, Polygon

WIDTH, HEIGHT, PANEL = 1120, 760, 300
PLAN = WIDTH - PANEL
MARGIN = 96

INK, SOFT, PAPER, PANEL_PAPER = "#22303a", "#6c7a80", "#f6f3ec", "#fffdf8"
GRASS, GRASS_LINE, ROOF, ROOF_DARK, SUN = "#dfe8cf", "#7d9460", "#c8583a", "#9e3f27", "#e8a317"
STREET, RULE = "#d5d3cd", "#3f7d8c"

STYLE = (
    f"text{{font-family:'Helvetica Neue',Helvetica,Arial,'DejaVu Sans',sans-serif;fill:{INK}}}"
    f".dim{{font-size:13px}}.small{{font-size:12px;fill:{SOFT}}}"
)


class Sheet:
    """Maps meters to the sheet. North may be anywhere; y goes up."""

    def __init__(self, plot: Polygon) -> None:
        xs, ys = [x for x, _ in plot], [y for _, y in plot]
        wide, high = max(xs) - min(xs), max(ys) - min(ys)
        self.scale = min((PLAN - 2 * MARGIN) / wide, (HEIGHT - 2 * MARGIN) / high)
        self._x = PLAN / 2 - self.scale * (max(xs) + min(xs)) / 2
        self._y = HEIGHT / 2 + self.scale * (max(ys) + min(ys)) / 2

    def at(self, point: Point) -> Point:
        return self._x + self.scale * point[0], self._y - self.scale * point[1]

    def path(self, points: Sequence[Point]) -> str:
        return "M" + "L".join(f"{x:.2f} {y:.2f}" for x, y in map(self.at, points)) + "Z"


def line(a: Point, b: Point, style: str) -> str:
    return f'<line x1="{a[0]:.2f}" y1="{a[1]:.2f}" x2="{b[0]:.2f}" y2="{b[1]:.2f}" {style}/>'


def label(at: Point, text: str, along: Sequence[Point], style: str, plate: str = "") -> str:
    """Write a text along a line, never upside down; `plate` is the color behind it."""
    (ax, ay), (bx, by) = along
    turn = (math.degrees(math.atan2(by - ay, bx - ax)) + 90.01) % 180 - 90.01
    half = 4.2 * len(text) + 3
    behind = (
        f'<rect x="{-half:.1f}" y="-9" width="{2 * half:.1f}" height="18" rx="4" fill="{plate}"/>'
    )
    return (
        f'<g transform="translate({at[0]:.2f} {at[1]:.2f}) rotate({turn:.2f})">'
        f'{behind if plate else ""}<text y="4.5" text-anchor="middle" {style}>{text}</text></g>'
    )


def between(a: Point, b: Point, share: float) -> Point:
    return a[0] + share * (b[0] - a[0]), a[1] + share * (b[1] - a[1])
