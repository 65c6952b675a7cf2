"""Convex polygons in the plane: corners counterclockwise, in meters."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import pairwise

Point = tuple[float, float]
Polygon = list[Point]

EPSILON = 1e-9
_GOLDEN = (math.sqrt(5) - 1) / 2


def area(polygon: Sequence[Point]) -> float:
    """Positive if the corners run counterclockwise."""
    return sum(a[0] * b[1] - b[0] * a[1] for a, b in sides(polygon)) / 2


def sides(polygon: Sequence[Point]) -> list[tuple[Point, Point]]:
    return list(zip(polygon, [*polygon[1:], *polygon[:1]], strict=True))


def is_convex(polygon: Sequence[Point]) -> bool:
    """Whether it turns left at every corner, and goes around once."""
    turned = 0.0
    lines = sides(polygon)
    for (a, b), (c, d) in zip(lines, [*lines[1:], *lines[:1]], strict=True):
        first, second = (b[0] - a[0], b[1] - a[1]), (d[0] - c[0], d[1] - c[1])
        if math.hypot(*first) < EPSILON:
            return False
        cross = first[0] * second[1] - first[1] * second[0]
        turn = math.atan2(cross, first[0] * second[0] + first[1] * second[1])
        if turn < -EPSILON or turn > math.pi - EPSILON:
            return False
        turned += turn
    return abs(turned - math.tau) < 1e-6


def inward(side: tuple[Point, Point]) -> Point:
    """The unit vector that points from a side into the polygon."""
    (ax, ay), (bx, by) = side
    length = math.hypot(bx - ax, by - ay)
    return (ay - by) / length, (bx - ax) / length


def distance(side: tuple[Point, Point], point: Point) -> float:
    """How far inside a side's line a point is; negative if it is outside."""
    normal, start = inward(side), side[0]
    return normal[0] * (point[0] - start[0]) + normal[1] * (point[1] - start[1])


def inset(polygon: Polygon, distances: Sequence[float]) -> Polygon:
    """The part that is at least this far from each side; empty if there is none."""
    left = list(polygon)
    for side, least in zip(sides(polygon), distances, strict=True):
        left = _cut(left, side, least)
    return left if len(left) >= 3 and area(left) > EPSILON else []


def _cut(polygon: Polygon, side: tuple[Point, Point], least: float) -> Polygon:
    kept: Polygon = []
    for start, end in sides(polygon):
        before, after = distance(side, start) - least, distance(side, end) - least
        if before >= 0:
            kept.append(start)
        if (before >= 0) != (after >= 0):
            share = before / (before - after)
            kept.append(
                (start[0] + share * (end[0] - start[0]), start[1] + share * (end[1] - start[1]))
            )
    return kept


def rotated(point: Point, radians: float) -> Point:
    cosine, sine = math.cos(radians), math.sin(radians)
    return point[0] * cosine - point[1] * sine, point[0] * sine + point[1] * cosine


class Floor:
    """The lower edge of a convex polygon: its lowest y at each x."""

    def __init__(self, polygon: Polygon) -> None:
        hull: Polygon = []
        for x, y in sorted(polygon):
            while len(hull) > 1 and _turns_right(hull[-2], hull[-1], (x, y)):
                hull.pop()
            hull.append((x, y))
        # A vertical side at the right end is not part of the floor.
        while len(hull) > 2 and hull[-1][0] - hull[-2][0] < EPSILON:
            hull.pop()
        self._x = [x for x, _ in hull]
        self._y = [y for _, y in hull]
        self._slope = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in pairwise(hull)]

    def at(self, x: float) -> float:
        place = bisect_right(self._x, x, 1, len(self._x) - 1) - 1
        return self._y[place] + self._slope[place] * (x - self._x[place])


def _turns_right(a: Point, b: Point, c: Point) -> bool:
    return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0]) <= 0


def climb(
    height: Callable[[float], float], low: float, high: float, tries: int
) -> tuple[float, float]:
    """Find the top of a hill by golden-section search; return its place and its height."""
    left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_left, at_right = height(left), height(right)
    for _ in range(tries):
        if at_left < at_right:
            low, left, at_left = left, right, at_right
            right = low + _GOLDEN * (high - low)
            at_right = height(right)
        else:
            high, right, at_right = right, left, at_left
            left = high - _GOLDEN * (high - low)
            at_left = height(left)
    top, place = max((height(each), each) for each in (low, left, right, high))
    return place, top
