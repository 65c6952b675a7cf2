"""The AppServer's geometry: no house stands where it must not, and none is smaller than it need."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ElementTree
from typing import Any

import pytest
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st

from holdfast_systems.compute.appserver.drawing import draw
from holdfast_systems.compute.appserver.fit import NoFit, Placement, Site, fit
from holdfast_systems.compute.appserver.geometry import Point, area, inset, is_convex, sides
from holdfast_systems.compute.appserver.server import solve_house
from holdfast_systems.compute.contract import load_contracts

pytestmark = pytest.mark.heavy

CONTRACT = load_contracts().find("house-fit", "1.0.0")
CORNER_METRES = 0.0002  # what the answer's rounding may move
# A failure is told at once: every try takes its time.
WITHOUT_SHRINKING = (Phase.explicit, Phase.reuse, Phase.generate)
SQUARE = [[0, 0], [30, 0], [30, 30], [0, 30]]


def site(**inputs: Any) -> Site:
    return Site.of(CONTRACT.inputs.filled(inputs))


@st.composite
def plots(draw: st.DrawFn) -> list[list[float]]:
    """Corners on an ellipse, in order: always convex; turned either way round."""
    angles = sorted(draw(st.sets(st.integers(0, 35), min_size=3, max_size=8)))
    width, height = draw(st.floats(8, 40)), draw(st.floats(8, 40))
    points = [
        [width * math.cos(angle * math.pi / 18), height * math.sin(angle * math.pi / 18)]
        for angle in angles
    ]
    return points if draw(st.booleans()) else points[::-1]


def _distance_to_line(a: Point, b: Point, p: Point) -> float:
    """Signed, by the area of the triangle: another way than the code's own."""
    twice = (b[0] - a[0]) * (p[1] - a[1]) - (p[0] - a[0]) * (b[1] - a[1])
    return twice / math.dist(a, b)


def _check_stands(where: Site, house: Placement) -> None:
    corners = [(round(x, 4), round(y, 4)) for x, y in house.corners]
    for number, (a, b) in enumerate(sides(where.plot)):
        is_street = number == where.street_side
        least = where.street_setback if is_street else where.neighbors_setback
        for corner in corners:
            assert _distance_to_line(a, b, corner) >= least - CORNER_METRES
    for (a, b), meters in zip(sides(house.corners), [house.width, house.depth] * 2, strict=True):
        assert math.dist(a, b) == pytest.approx(meters)
    assert math.dist(house.corners[0], house.corners[2]) == pytest.approx(
        math.hypot(house.width, house.depth)
    )


@settings(max_examples=10, phases=WITHOUT_SHRINKING)
@given(plots(), st.integers(0, 2), st.floats(0, 6), st.floats(0, 6), st.floats(0, 1), st.data())
def test_a_house_keeps_its_distances_and_its_limits(
    plot: list[list[float]],
    street_side: int,
    street: float,
    neighbors: float,
    sun_weight: float,
    data: st.DataObject,
) -> None:
    where = site(
        plot=plot,
        street_side=street_side,
        setbacks={"street": street, "neighbors": neighbors},
        coverage_max=data.draw(st.floats(0.2, 1)),
        north=data.draw(st.floats(0, 359)),
        sun_weight=sun_weight,
    )
    try:
        placements = fit(where)
    except NoFit:
        return
    assert [*placements] == sorted(placements, key=lambda each: -each.score)
    for house in placements:
        _check_stands(where, house)
        limits = where.house
        assert limits.width_min <= house.width <= limits.width_max
        assert limits.depth_min <= house.depth <= min(limits.depth_max, house.width)
        assert house.width / house.depth <= limits.aspect_max * 1.01
        assert house.footprint <= where.coverage_max * where.area + 1e-6
        assert 0 <= house.score <= 100
    ElementTree.fromstring(draw(where, placements))


@settings(max_examples=6, phases=WITHOUT_SHRINKING)
@given(st.floats(12, 30), st.floats(12, 30), st.floats(0, 180), st.floats(0, 2))
def test_the_largest_house_on_a_rectangle_fills_what_the_setbacks_leave(
    width: float, depth: float, degrees: float, setback: float
) -> None:
    assume(width >= depth)
    turn = math.radians(degrees)
    plot = [
        [x * math.cos(turn) - y * math.sin(turn), x * math.sin(turn) + y * math.cos(turn)]
        for x, y in [(0, 0), (width, 0), (width, depth), (0, depth)]
    ]
    house = {"width_max": 200, "depth_max": 200, "aspect_max": 10}
    where = site(
        plot=plot,
        setbacks={"street": setback, "neighbors": setback},
        house=house,
        coverage_max=1,
        sun_weight=0,
    )
    best = fit(where)[0]
    assert best.width == pytest.approx(width - 2 * setback, abs=0.03)
    assert best.depth == pytest.approx(depth - 2 * setback, abs=0.03)


def test_no_more_of_the_plot_is_built_on_than_allowed() -> None:
    best = fit(site(plot=SQUARE, coverage_max=0.1))[0]
    assert 89 < best.footprint <= 90


def test_a_house_on_a_vast_plot_keeps_the_contract() -> None:
    far = 100_000
    plot = [[-far, -far], [far, -far], [far, far], [-far, far]]
    CONTRACT.outputs.check(solve_house(CONTRACT.inputs.filled({"plot": plot})))


def test_the_sun_turns_the_house() -> None:
    for north in (0, 30, 75):
        best = fit(site(plot=SQUARE, north=north, sun_weight=1, house={"width_max": 10}))[0]
        assert best.front_degrees(site(plot=SQUARE, north=north)) == pytest.approx(180, abs=0.5)


def test_the_street_side_is_the_same_whichever_way_the_corners_run() -> None:
    plot = [[0, 0], [30, 0], [34, 40], [0, 30]]
    for street_side in range(4):
        there = site(plot=plot, street_side=street_side)
        back = site(plot=plot[::-1], street_side=(len(plot) - 2 - street_side) % 4)
        street, same = (each.plot[each.street_side] for each in (there, back))
        assert street == same


@pytest.mark.parametrize(
    ("inputs", "code"),
    [
        ({"plot": [[0, 0], [30, 0], [10, 10], [0, 30]]}, "PLOT_NOT_CONVEX"),
        ({"plot": [[0, 0], [30, 30], [30, 0], [0, 30]]}, "PLOT_NOT_CONVEX"),
        ({"plot": [[0, 0], [0, 0], [30, 0], [0, 30]]}, "PLOT_NOT_CONVEX"),
        ({"plot": [[0, 0], [10, 10], [20, 20]]}, "PLOT_NOT_CONVEX"),
        ({"plot": SQUARE, "street_side": 4}, "STREET_SIDE"),
        ({"plot": SQUARE, "setbacks": {"neighbors": 16}}, "NO_FIT"),
        ({"plot": SQUARE, "house": {"depth_min": 28, "depth_max": 30}}, "NO_FIT"),
        ({"plot": SQUARE, "house": {"width_min": 20, "width_max": 10}}, "NO_FIT"),
        ({"plot": SQUARE, "coverage_max": 0.01}, "NO_FIT"),
    ],
)
def test_what_has_no_answer_is_told(inputs: dict[str, Any], code: str) -> None:
    with pytest.raises(NoFit) as told:
        fit(site(**inputs))
    assert told.value.code == code


@given(plots(), st.floats(0, 10))
def test_an_inset_of_a_convex_polygon_is_convex_and_smaller(
    plot: list[list[float]], meters: float
) -> None:
    polygon = [(x, y) for x, y in plot]
    if area(polygon) < 0:
        polygon.reverse()
    assume(is_convex(polygon))
    left = inset(polygon, [meters] * len(polygon))
    assert not left or 0 < area(left) <= area(polygon) + 1e-9
