"""The site plan as an SVG: the plot, its buildable area, the house, and its numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from holdfast_systems.compute.appserver.fit import Placement, Site
from holdfast_systems.compute.appserver.geometry import Point, distance, inward, sides
from holdfast_systems.compute.appserver.panel import draw_panel
from holdfast_systems.compute.appserver.sheet import (
    GRASS,
    GRASS_LINE,
    HEIGHT,
    INK,
    PANEL_PAPER,
    PAPER,
    PLAN,
    ROOF,
    ROOF_DARK,
    RULE,
    SOFT,
    STREET,
    STYLE,
    SUN,
    WIDTH,
    Sheet,
    between,
    label,
    line,
)

STREET_PIXELS = 84
SCALES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000)


def draw(site: Site, placements: Sequence[Placement]) -> str:
    sheet = Sheet(site.plot)
    pieces = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"'
        f' width="{WIDTH}" height="{HEIGHT}" role="img">',
        f"<title>House on its plot, score {placements[0].score:.1f}</title>",
        f"<style>{STYLE}</style>",
        *_definitions(sheet),
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="{PAPER}"/>',
        f'<g clip-path="url(#plan)"><rect width="{PLAN}" height="{HEIGHT}" fill="url(#grid)"/>',
        *_ground(site, sheet),
        *_others(sheet, placements[1:]),
        *_distances(site, sheet, placements[0]),
        *_house(sheet, placements[0]),
        "</g>",
        *_plot_lengths(site, sheet),
        *_scale_bar(sheet),
        *_north(site),
        *draw_panel(site, placements[0]),
        "</svg>",
    ]
    return "\n".join(pieces)


def _definitions(sheet: Sheet) -> Iterator[str]:
    x, y = sheet.at((0, 0))
    step = 5 * sheet.scale
    yield (
        f'<defs><clipPath id="plan"><rect width="{PLAN}" height="{HEIGHT}"/></clipPath>'
        f'<pattern id="grid" width="{step:.3f}" height="{step:.3f}" x="{x:.2f}" y="{y:.2f}"'
        ' patternUnits="userSpaceOnUse">'
        f'<path d="M{step:.3f} 0H0V{step:.3f}" fill="none" stroke="#e4dfd3"/></pattern>'
        '<pattern id="hatch" width="9" height="9" patternUnits="userSpaceOnUse"'
        ' patternTransform="rotate(45)">'
        f'<path d="M0 0V9" stroke="{GRASS_LINE}" stroke-opacity=".38" stroke-width="1.6"/>'
        "</pattern></defs>"
    )


def _ground(site: Site, sheet: Sheet) -> Iterator[str]:
    plot, buildable = sheet.path(site.plot), sheet.path(site.buildable)
    yield from _street(site, sheet)
    yield f'<path d="{plot}" fill="{GRASS}"/>'
    yield f'<path d="{plot}{buildable}" fill="url(#hatch)" fill-rule="evenodd"/>'
    yield (
        f'<path d="{buildable}" fill="#eef3e2" stroke="{GRASS_LINE}" stroke-width="1.5"'
        ' stroke-dasharray="7 5"/>'
    )
    border = f'stroke="{INK}" stroke-width="2.5" stroke-linejoin="round"'
    yield f'<path d="{plot}" fill="none" {border}/>'


def _street(site: Site, sheet: Sheet) -> Iterator[str]:
    (ax, ay), (bx, by) = side = sides(site.plot)[site.street_side]
    nx, ny = inward(side)
    length = math.hypot(bx - ax, by - ay)
    ux, uy = (bx - ax) / length, (by - ay) / length

    def beside(along: float, out: float) -> Point:
        return ax + along * ux - out * nx, ay + along * uy - out * ny

    far = 4 * max(length, WIDTH / sheet.scale)
    broad = STREET_PIXELS / sheet.scale
    band = [beside(-far, 0), beside(far, 0), beside(far, broad), beside(-far, broad)]
    yield f'<path d="{sheet.path(band)}" fill="{STREET}"/>'
    middle = [sheet.at(beside(-far, broad / 2)), sheet.at(beside(far, broad / 2))]
    yield line(middle[0], middle[1], 'stroke="#fff" stroke-width="2" stroke-dasharray="16 12"')
    place = sheet.at(beside(length / 2, broad * 0.76))
    yield label(place, "STREET", middle, 'class="small" letter-spacing="6"')


def _others(sheet: Sheet, placements: Sequence[Placement]) -> Iterator[str]:
    for placement in placements:
        yield (
            f'<path d="{sheet.path(placement.corners)}" fill="none" stroke="{ROOF}"'
            ' stroke-opacity=".45" stroke-width="1.3" stroke-dasharray="2 4"/>'
        )


def _house(sheet: Sheet, placement: Placement) -> Iterator[str]:
    corners = placement.corners
    path = sheet.path(corners)
    yield f'<path d="{path}" transform="translate(7 9)" fill="{INK}" fill-opacity=".16"/>'
    yield f'<path d="{path}" fill="{ROOF}" stroke="{ROOF_DARK}" stroke-width="2"/>'
    yield from _roof(sheet, corners, placement)
    front = [sheet.at(corner) for corner in corners[:2]]
    yield line(front[0], front[1], f'stroke="{SUN}" stroke-width="6" stroke-linecap="round"')
    yield from _dimension(sheet, corners[1], corners[0], placement.width)
    yield from _dimension(sheet, corners[2], corners[1], placement.depth)


def _roof(sheet: Sheet, corners: Sequence[Point], placement: Placement) -> Iterator[str]:
    """Draw a hipped roof: the ridge, the hips, and the lit side a little brighter."""
    reach = placement.depth / 2 / placement.width
    ends = [
        between(between(corners[0], corners[3], 0.5), between(corners[1], corners[2], 0.5), share)
        for share in (reach, 1 - reach)
    ]
    lit = [corners[0], corners[1], ends[1], ends[0]]
    yield f'<path d="{sheet.path(lit)}" fill="#fff" fill-opacity=".16"/>'
    lines = [(corners[0], 0), (corners[3], 0), (corners[1], 1), (corners[2], 1), (ends[0], 1)]
    for start, end in lines:
        yield line(sheet.at(start), sheet.at(ends[end]), f'stroke="{ROOF_DARK}" stroke-width="1.2"')


def _distances(site: Site, sheet: Sheet, placement: Placement) -> Iterator[str]:
    """Draw the shortest distance from the house to each side of the plot that is beside it."""
    for number, side in enumerate(sides(site.plot)):
        nx, ny = inward(side)
        least = min(distance(side, corner) for corner in placement.corners)
        nearest = [each for each in placement.corners if distance(side, each) < least + 0.01]
        start = between(nearest[0], nearest[-1], 0.5)
        end = (start[0] - least * nx, start[1] - least * ny)
        if least < 1e-6 or not _is_beside(side, end):
            continue
        color = RULE if number == site.street_side else SOFT
        a, b = sheet.at(start), sheet.at(end)
        yield line(a, b, f'stroke="{color}" stroke-width="1.4"')
        yield f'<circle cx="{b[0]:.2f}" cy="{b[1]:.2f}" r="3" fill="{color}"/>'
        style = f'class="dim" style="fill:{color}"'
        yield label(between(a, b, 0.5), f"{least:.2f}", (a, b), style, PANEL_PAPER)


def _dimension(sheet: Sheet, start: Point, end: Point, meters: float) -> Iterator[str]:
    """Draw a line with ticks along a side of the house, and the side's length, inside the house."""
    (ax, ay), (bx, by) = a, b = sheet.at(start), sheet.at(end)
    length = math.hypot(bx - ax, by - ay)
    nx, ny = (by - ay) / length, (ax - bx) / length
    rule, words = (
        [(x - offset * nx, y - offset * ny) for x, y in (a, b)] for offset in (16.0, 28.0)
    )
    yield line(rule[0], rule[1], 'stroke="#fff" stroke-width="1.2" stroke-opacity=".8"')
    for x, y in rule:
        yield line(
            (x - 5 * nx, y - 5 * ny), (x + 5 * nx, y + 5 * ny), 'stroke="#fff" stroke-width="1.2"'
        )
    style = 'class="dim" style="fill:#fff" font-weight="600"'
    yield label(between(words[0], words[1], 0.5), f"{meters:.2f} m", (a, b), style)


def _plot_lengths(site: Site, sheet: Sheet) -> Iterator[str]:
    for side in sides(site.plot):
        a, b = map(sheet.at, side)
        nx, ny = inward(side)
        x, y = between(a, b, 0.5)
        text = f"{math.dist(*side):.2f} m"
        yield label((x - 17 * nx, y + 17 * ny), text, (a, b), 'class="dim"')


def _scale_bar(sheet: Sheet) -> Iterator[str]:
    meters = max(each for each in SCALES if each * sheet.scale < 190 or each == SCALES[0])
    x, y, part = 36.0, HEIGHT - 36.0, meters * sheet.scale / 4
    yield (
        f'<rect x="{x - 16}" y="{y - 28}" width="{4 * part + 42:.2f}" height="46" rx="6"'
        f' fill="{PANEL_PAPER}" fill-opacity=".9"/>'
    )
    for number in range(4):
        fill = INK if number % 2 == 0 else PAPER
        yield (
            f'<rect x="{x + number * part:.2f}" y="{y}" width="{part:.2f}" height="7"'
            f' fill="{fill}" stroke="{INK}"/>'
        )
    yield f'<text class="small" x="{x}" y="{y - 7}">0</text>'
    yield (
        f'<text class="small" x="{x + 4 * part:.2f}" y="{y - 7}" text-anchor="middle">'
        f"{meters} m</text>"
    )


def _north(site: Site) -> Iterator[str]:
    yield (
        f'<g transform="translate(64 76) rotate({site.north_degrees:.2f})">'
        f'<circle r="30" fill="{PANEL_PAPER}" stroke="{INK}" stroke-width="1.2"/>'
        f'<path d="M0-23L9 15L0 9Z" fill="{INK}"/>'
        f'<path d="M0-23L-9 15L0 9Z" fill="none" stroke="{INK}" stroke-width="1.2"/>'
        '<text y="-36" text-anchor="middle" font-size="15" font-weight="700">N</text></g>'
    )


def _is_beside(side: tuple[Point, Point], point: Point) -> bool:
    (ax, ay), (bx, by) = side
    along = (point[0] - ax) * (bx - ax) + (point[1] - ay) * (by - ay)
    return 0 <= along <= (bx - ax) ** 2 + (by - ay) ** 2
