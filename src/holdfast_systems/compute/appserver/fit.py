"""Find the best place for a house on a plot.

The plot is convex, and so is the buildable area that the setbacks leave. For one direction of the
house, look at that area in the axes of the house: a house from x to x + w fits if its depth is at
most

    min(top(x), top(x + w)) - max(bottom(x), bottom(x + w))

which is a concave function of x, so hill climbing finds its maximum. The area has a single maximum
in w, too. What remains is a search over the directions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from holdfast_systems.compute.appserver.geometry import (
    EPSILON,
    Floor,
    Point,
    Polygon,
    area,
    climb,
    distance,
    inset,
    is_convex,
    rotated,
    sides,
)

STEP_DEGREES = 4
DIRECTION_TRIES = 10
# Steps of a climb: few to compare directions, many for the result.
ROUGH, FINE = 14, 28
RESULTS_MAX = 3
APART_DEGREES = 20.0
CENTIMETER = 0.01


class NoFit(Exception):
    """These inputs have no solution; `code` says why."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True)
class House:
    width_min: float
    width_max: float
    depth_min: float
    depth_max: float
    aspect_max: float
    storeys: int


@dataclass(frozen=True)
class Site:
    """A plot, counterclockwise, and the rules for building on it."""

    plot: Polygon
    street_side: int
    street_setback: float
    neighbors_setback: float
    house: House
    coverage_max: float
    north_degrees: float
    sun_weight: float

    @classmethod
    def of(cls, inputs: Mapping[str, Any]) -> Site:
        plot = [(float(x), float(y)) for x, y in inputs["plot"]]
        street = inputs["street_side"]
        if street >= len(plot):
            raise NoFit("STREET_SIDE", f"a plot of {len(plot)} sides has no side {street}")
        if area(plot) < 0:
            # The side between the last two corners becomes the first one.
            plot.reverse()
            street = (len(plot) - 2 - street) % len(plot)
        if not is_convex(plot):
            raise NoFit("PLOT_NOT_CONVEX", "the plot must be convex, without duplicate corners")
        return cls(
            plot=plot,
            street_side=street,
            street_setback=inputs["setbacks"]["street"],
            neighbors_setback=inputs["setbacks"]["neighbors"],
            house=House(**inputs["house"]),
            coverage_max=inputs["coverage_max"],
            north_degrees=inputs["north"],
            sun_weight=inputs["sun_weight"],
        )

    @cached_property
    def area(self) -> float:
        return area(self.plot)

    @cached_property
    def buildable(self) -> Polygon:
        """The area that the setbacks leave."""
        setbacks = [self.neighbors_setback] * len(self.plot)
        setbacks[self.street_side] = self.street_setback
        return inset(self.plot, setbacks)

    @property
    def footprint_max(self) -> float:
        most = self.house.width_max * self.house.depth_max
        return min(most, self.coverage_max * self.area)

    @property
    def south(self) -> Point:
        north = math.radians(self.north_degrees)
        return -math.sin(north), -math.cos(north)


@dataclass(frozen=True)
class Placement:
    """A house in its place. Its first side, from corner 0 to corner 1, is its front."""

    width: float
    depth: float
    corners: list[Point]
    score: float

    @property
    def footprint(self) -> float:
        return self.width * self.depth

    @property
    def angle_degrees(self) -> float:
        (ax, ay), (bx, by) = self.corners[:2]
        return round(math.degrees(math.atan2(by - ay, bx - ax)) % 180, 2) % 180

    def front_degrees(self, site: Site) -> float:
        """The direction that the front faces, clockwise from north."""
        (ax, ay), (bx, by) = self.corners[:2]
        from_y = math.degrees(math.atan2(by - ay, bx - ax))
        return round((180 - from_y - site.north_degrees) % 360, 2) % 360


class View:
    """The buildable area in the axes of a house that is turned by an angle."""

    def __init__(self, site: Site, degrees: float, tries: int) -> None:
        self._site = site
        self._tries = tries
        self._radians = math.radians(degrees)
        turned = [rotated(point, -self._radians) for point in site.buildable]
        self._bottom = Floor(turned)
        self._top = Floor([(x, -y) for x, y in turned])
        self._left = min(x for x, _ in turned)
        self._right = max(x for x, _ in turned)

    def best(self) -> Placement | None:
        """Find the largest house in this direction."""
        house = self._site.house
        least = max(house.width_min, house.depth_min)
        most = min(house.width_max, self._right - self._left)
        if least > most or self._area(least) < 0:
            return None
        width, _ = climb(self._area, least, most, self._tries)
        if self._area(width) < 0:
            width = least
        return self._placed(_floored(width, least), _floored(self._depth(width), house.depth_min))

    def _area(self, width: float) -> float:
        """The largest area of a house of this width; negative if none fits."""
        house = self._site.house
        depth = self._depth(width)
        least = max(house.depth_min, width / house.aspect_max)
        return width * depth if depth >= least - EPSILON else -width

    def _depth(self, width: float) -> float:
        house = self._site.house
        _, free = climb(lambda x: self._free(x, width), *self._range(width), self._tries)
        return min(free, house.depth_max, width, self._site.footprint_max / width)

    def _range(self, width: float) -> tuple[float, float]:
        return self._left, max(self._left, self._right - width)

    def _heights(self, x: float, width: float) -> tuple[float, float]:
        low = max(self._bottom.at(x), self._bottom.at(x + width))
        return low, min(-self._top.at(x), -self._top.at(x + width))

    def _free(self, x: float, width: float) -> float:
        low, high = self._heights(x, width)
        return high - low

    def _placed(self, width: float, depth: float) -> Placement:
        """Put the house in the middle of where it fits."""
        low, high = self._range(width)
        best, _ = climb(lambda x: self._free(x, width), low, high, self._tries)
        x = (self._last(best, low, width, depth) + self._last(best, high, width, depth)) / 2
        bottom, top = self._heights(x, width)
        y = (bottom + top - depth) / 2
        corners = [(x, y), (x + width, y), (x + width, y + depth), (x, y + depth)]
        around = [rotated(point, self._radians) for point in corners]
        if self._sun() < 0:  # the other long side is the front
            around = [*around[2:], *around[:2]]
        return Placement(width, depth, around, self._score(width * depth))

    def _last(self, start: float, end: float, width: float, depth: float) -> float:
        """Find the last place from `start` toward `end` where the house fits."""
        for _ in range(40):
            middle = (start + end) / 2
            if self._free(middle, width) >= depth:
                start = middle
            else:
                end = middle
        return start

    def _sun(self) -> float:
        """How much the first of the two long sides faces south, from -1 to 1."""
        front = rotated((0.0, -1.0), self._radians)
        south = self._site.south
        return front[0] * south[0] + front[1] * south[1]

    def _score(self, footprint: float) -> float:
        weight = self._site.sun_weight
        size = min(1.0, footprint / self._site.footprint_max)
        return 100 * ((1 - weight) * size + weight * abs(self._sun()))


def fit(site: Site) -> list[Placement]:
    """Find the best placements in clearly different directions, the best first."""
    if not site.buildable:
        raise NoFit("NO_FIT", "the setbacks leave no room on the plot")
    found = {degrees: View(site, degrees, ROUGH).best() for degrees in _directions(site)}
    scores = {degrees: best.score for degrees, best in found.items() if best}
    chosen: list[Placement] = []
    for degrees in sorted(scores, key=lambda degrees: -scores[degrees]):
        if len(chosen) == RESULTS_MAX:
            break
        if all(_apart(degrees, other.angle_degrees) >= APART_DEGREES for other in chosen):
            chosen.append(_refined(site, degrees))
    if not chosen:
        raise NoFit("NO_FIT", "even the smallest house does not fit within the setbacks")
    return sorted(chosen, key=lambda placement: -placement.score)


def _directions(site: Site) -> list[float]:
    """Evenly spaced directions, and those of the plot's sides."""
    along = [
        math.degrees(math.atan2(b[1] - a[1], b[0] - a[0])) + turn
        for a, b in sides(site.plot)
        for turn in (0, 90)
    ]
    return sorted({*map(float, range(0, 180, STEP_DEGREES)), *(each % 180 for each in along)})


def _refined(site: Site, degrees: float) -> Placement:
    """Search more finely, also a little to the left and to the right."""

    def score(angle: float) -> float:
        best = View(site, angle, ROUGH).best()
        return -1.0 if best is None else best.score

    beside, _ = climb(score, degrees - STEP_DEGREES, degrees + STEP_DEGREES, DIRECTION_TRIES)
    close = [View(site, angle, FINE).best() for angle in (degrees, beside)]
    return max((each for each in close if each), key=lambda placement: placement.score)


def _apart(degrees: float, other: float) -> float:
    between = abs(degrees - other) % 180
    return min(between, 180 - between)


def _floored(length: float, least: float) -> float:
    """Round down to centimeters, but not below `least`."""
    return max(least, math.floor(length / CENTIMETER + EPSILON) * CENTIMETER)


def clearances(site: Site, corners: Sequence[Point]) -> tuple[float, float]:
    """The distances from the house to the street side, and to the nearest other side."""
    nearest = [min(distance(side, corner) for corner in corners) for side in sides(site.plot)]
    street = nearest.pop(site.street_side)
    return street, min(nearest)
