"""The panel beside the plan: the house in numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator

from holdfast_systems.compute.appserver.fit import Placement, Site, clearances
from holdfast_systems.compute.appserver.sheet import (
    GRASS_LINE,
    HEIGHT,
    PANEL,
    PANEL_PAPER,
    PLAN,
    ROOF,
    SUN,
    WIDTH,
    line,
)


def draw_panel(site: Site, best: Placement) -> Iterator[str]:
    street, others = clearances(site, best.corners)
    left = PLAN + 34
    yield f'<rect x="{PLAN}" width="{PANEL}" height="{HEIGHT}" fill="{PANEL_PAPER}"/>'
    yield line((PLAN, 0), (PLAN, HEIGHT), 'stroke="#d9d3c5"')
    yield f'<text x="{left}" y="62" font-size="22" font-weight="700">House on its plot</text>'
    yield from _gauge(PLAN + PANEL / 2, 182, best.score)
    rows = [
        ("Footprint", f"{best.footprint:.1f} m²"),
        ("Floor area", f"{best.footprint * site.house.storeys:.1f} m²"),
        ("Stories", f"{site.house.storeys}"),
        ("House", f"{best.width:.2f} by {best.depth:.2f} m"),
        ("Plot", f"{site.area:.1f} m²"),
        ("Coverage", f"{best.footprint / site.area:.0%} of {site.coverage_max:.0%}"),
        ("To the street", f"{street:.2f} m (≥ {site.street_setback:g})"),
        ("To the neighbors", f"{others:.2f} m (≥ {site.neighbors_setback:g})"),
        ("Front faces", f"{best.front_degrees(site):.0f}° {_wind(best.front_degrees(site))}"),
    ]
    for number, (name, value) in enumerate(rows):
        y = 306 + number * 32
        yield f'<text class="small" x="{left}" y="{y}">{name}</text>'
        yield (
            f'<text x="{WIDTH - 34}" y="{y}" text-anchor="end" font-size="14"'
            f' font-weight="600">{value}</text>'
        )
        yield line((left, y + 10), (WIDTH - 34, y + 10), 'stroke="#ece6d9"')
    yield from _legend(left, 306 + len(rows) * 32 + 14)


def _gauge(x: float, y: float, score: float) -> Iterator[str]:
    around = 2 * math.pi * 72
    ring = f'cx="{x}" cy="{y}" r="72" fill="none" stroke-width="12"'
    yield f'<circle {ring} stroke="#ece6d9"/>'
    yield (
        f'<circle {ring} stroke="{SUN}" stroke-linecap="round" transform="rotate(-90 {x} {y})"'
        f' stroke-dasharray="{around * score / 100:.2f} {around:.2f}"/>'
    )
    yield (
        f'<text x="{x}" y="{y + 9}" text-anchor="middle" font-size="36" font-weight="700">'
        f"{score:.1f}</text>"
    )
    yield f'<text class="small" x="{x}" y="{y + 30}" text-anchor="middle">of 100</text>'


def _legend(x: float, y: float) -> Iterator[str]:
    entries = [
        (f'stroke="{ROOF}" stroke-width="12"', "house"),
        (f'stroke="{SUN}" stroke-width="6" stroke-linecap="round"', "its front"),
        (f'stroke="{GRASS_LINE}" stroke-width="1.5" stroke-dasharray="7 5"', "buildable area"),
        (f'stroke="{ROOF}" stroke-width="1.3" stroke-dasharray="2 4"', "alternatives"),
    ]
    for number, (style, text) in enumerate(entries):
        yield (
            f'<g transform="translate({x:.0f} {y + number * 26:.0f})"><path d="M0 6H22" {style}/>'
            f'<text class="small" x="30" y="10">{text}</text></g>'
        )


def _wind(degrees: float) -> str:
    return ("N", "NE", "E", "SE", "S", "SW", "W", "NW")[round(degrees / 45) % 8]
