"""A recording as an animated SVG that needs nothing from the network."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from xml.sax.saxutils import escape

from pyte.screens import Char

from scripts.pictures.recording import COLUMNS, Frame, Line

CELL_WIDTH = 8.4
CELL_HEIGHT = 18
FONT_SIZE = 14
MARGIN = 14
BAR = 30
FONTS = "ui-monospace, 'SF Mono', Menlo, Consolas, 'DejaVu Sans Mono', 'Liberation Mono', monospace"
BACKGROUND = "#14181f"
TEXT = "#d5dae3"
DIM = "#7f8896"
HIDDEN = ' visibility="hidden"'
COLORS = {
    "default": TEXT,
    "black": "#3b4252",
    "red": "#f0717a",
    "green": "#7ccf84",
    "brown": "#e5c06b",
    "blue": "#77a8f2",
    "magenta": "#c397d8",
    "cyan": "#63c5cf",
    "white": "#e6eaf0",
    "brightblack": DIM,
}


def draw(frames: Sequence[Frame], title: str, description: str) -> str:
    """All frames in turn, each for its time. Where nothing can move, the last one stays."""
    shown = _without_repeats(frames)
    lines = max(_height(frame.lines) for frame in shown)
    width = COLUMNS * CELL_WIDTH + 2 * MARGIN
    height = lines * CELL_HEIGHT + 2 * MARGIN + BAR
    last = len(shown) - 1
    groups = [
        f'<g class="frame-{number}"{"" if number == last else HIDDEN}>'
        f"{''.join(_lines(frame.lines[:lines]))}</g>"
        for number, frame in enumerate(shown)
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {width:g} {height:g}"'
            f' width="{width:g}" height="{height:g}" font-family="{FONTS}"'
            f' font-size="{FONT_SIZE}" fill="{TEXT}">',
            f"<title>{escape(title)}</title>",
            f"<desc>{escape(description)}</desc>",
            f"<style>{_style(shown)}</style>",
            f'<rect width="{width:g}" height="{height:g}" rx="8" fill="{BACKGROUND}"/>',
            *_window(width, title),
            *groups,
            "</svg>",
            "",
        ]
    )


def _without_repeats(frames: Sequence[Frame]) -> list[Frame]:
    """Put equal neighbors together."""
    return [
        Frame(lines, sum(frame.seconds for frame in equal))
        for lines, equal in groupby(frames, key=lambda frame: frame.lines)
    ]


def _height(lines: Sequence[Line]) -> int:
    used = [row for row, line in enumerate(lines, 1) if any(cell.data.strip() for cell in line)]
    return max(used, default=1)


def _style(frames: Sequence[Frame]) -> str:
    """What moves. All else is in attributes, for viewers that know no CSS."""
    whole = sum(frame.seconds for frame in frames)
    rules = []
    begins = 0.0
    for number, frame in enumerate(frames):
        ends = begins + frame.seconds
        rules.append(_keyframes(number, 100 * begins / whole, 100 * ends / whole))
        rules.append(f".frame-{number} {{ animation: f{number} {whole:.2f}s step-end infinite; }}")
        begins = ends
    return f"@media (prefers-reduced-motion: no-preference) {{ {' '.join(rules)} }}"


def _keyframes(number: int, begins: float, ends: float) -> str:
    """Show a frame between two percentages of the whole time, and hide it otherwise."""
    steps = {0.0: "hidden", begins: "visible", ends: "hidden"}
    shown = " ".join(
        f"{percent:.3f}% {{ visibility: {visibility}; }}" for percent, visibility in steps.items()
    )
    return f"@keyframes f{number} {{ {shown} }}"


def _window(width: float, title: str) -> Iterator[str]:
    for place, color in enumerate(("#f0717a", "#e5c06b", "#7ccf84")):
        yield f'<circle cx="{MARGIN + 6 + 18 * place}" cy="{BAR / 2 + 3}" r="5.5" fill="{color}"/>'
    yield (
        f'<text x="{width / 2:g}" y="{BAR / 2 + 8:g}" text-anchor="middle"'
        f' fill="{DIM}" font-size="12">{escape(title)}</text>'
    )


def _lines(lines: Sequence[Line]) -> Iterator[str]:
    for row, line in enumerate(lines):
        top = BAR + MARGIN + row * CELL_HEIGHT
        column = 0
        for look, cells in groupby(line, key=_look):
            text = "".join(cell.data for cell in cells)
            yield from _run(text, look, column, top)
            column += len(text)


def _look(cell: Char) -> tuple[str, str, bool]:
    """Foreground, background and weight of a cell; pyte knows no dim."""
    front, back = _color(cell.fg, TEXT), _color(cell.bg, BACKGROUND)
    return (back, front, cell.bold) if cell.reverse else (front, back, cell.bold)


def _color(name: str, default: str) -> str:
    if name == "default":
        return default
    return COLORS.get(name) or f"#{name}"


def _run(text: str, look: tuple[str, str, bool], column: int, top: float) -> Iterator[str]:
    front, back, bold = look
    left = MARGIN + column * CELL_WIDTH
    width = len(text) * CELL_WIDTH
    if back != BACKGROUND:
        yield (
            f'<rect x="{left:.1f}" y="{top:g}" width="{width:.1f}" height="{CELL_HEIGHT}"'
            f' fill="{back}"/>'
        )
    fill = "" if front == TEXT else f' fill="{front}"'
    weight = ' font-weight="700"' if bold else ""
    # A place and a length of its own for each part keep columns in line, whatever font is there and
    # whether or not the viewer keeps spaces.
    for part in re.finditer(r"\S+(?: \S+)*", text):
        yield (
            f'<text x="{left + part.start() * CELL_WIDTH:.1f}" y="{top + 13.5:g}"'
            f' textLength="{len(part[0]) * CELL_WIDTH:.1f}" lengthAdjust="spacingAndGlyphs"'
            f"{fill}{weight}>{escape(part[0])}</text>"
        )
