"""As much of PromQL as the rules of this system use, over scrapes of a real exposition."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from tests.support.scraping import Scraped

Labels = frozenset[tuple[str, str]]
Vector = dict[Labels, float]

_ABOVE = re.compile(r"(.+) > ([\d.]+)")
_SUM = re.compile(r"(sum|max)(?: by \(([\w, ]+)\) )?\((.+)\)")
_QUANTILE = re.compile(r"histogram_quantile\(([\d.]+), (.+)\)")
_OVER_TIME = re.compile(r"(rate|increase)\((.+)\[(\d+)m\]\)")
_SELECTOR = re.compile(r"(\w+)(?:\{(.*)\})?")
_MATCHER = re.compile(r'(\w+)(=~|=)"([^"]*)"')


class Scrape(NamedTuple):
    minute: float
    samples: dict[tuple[str, Labels], float]


def scrape(minute: float, exposition: str) -> Scrape:
    found = {
        (each.name, frozenset(each.labels.items())): each.value
        for each in Scraped(exposition).samples
    }
    return Scrape(minute, found)


class Prometheus:
    """Evaluates expressions at the time of the last scrape."""

    def __init__(self, scrapes: Sequence[Scrape], recorded: Mapping[str, str]) -> None:
        self._scrapes = scrapes
        self._recorded = recorded

    def evaluate(self, text: str) -> Vector:
        if found := _ABOVE.fullmatch(text):
            vector = self.evaluate(found[1])
            return {labels: value for labels, value in vector.items() if value > float(found[2])}
        if found := _QUANTILE.fullmatch(text):
            return _quantile(float(found[1]), self.evaluate(found[2]))
        if found := _OVER_TIME.fullmatch(text):
            return self._increase(found[2], float(found[3]), is_rate=found[1] == "rate")
        if found := _SUM.fullmatch(text):
            kept = set((found[2] or "").replace(" ", "").split(","))
            return _aggregated(found[1], kept, self.evaluate(found[3]))
        if text in self._recorded:
            return self.evaluate(self._recorded[text])
        return _selected(self._scrapes[-1], text)

    def _increase(self, selector: str, minutes: float, *, is_rate: bool) -> Vector:
        last = self._scrapes[-1]
        first = next(each for each in self._scrapes if each.minute >= last.minute - minutes)
        before = _selected(first, selector)
        divisor = 60 * (last.minute - first.minute) if is_rate else 1
        return {
            labels: (value - before.get(labels, 0)) / divisor
            for labels, value in _selected(last, selector).items()
        }


def _selected(scrape: Scrape, text: str) -> Vector:
    found = _SELECTOR.fullmatch(text)
    assert found is not None, text
    matchers = _MATCHER.findall(found[2] or "")
    return {
        labels: value
        for (name, labels), value in scrape.samples.items()
        if name == found[1] and _fits(dict(labels), matchers)
    }


def _fits(labels: Mapping[str, str], matchers: Iterable[tuple[str, str, str]]) -> bool:
    return all(
        re.fullmatch(value if kind == "=~" else re.escape(value), labels.get(name, ""))
        for name, kind, value in matchers
    )


def _aggregated(kind: str, kept: set[str], vector: Vector) -> Vector:
    groups: defaultdict[Labels, list[float]] = defaultdict(list)
    for labels, value in vector.items():
        groups[frozenset(each for each in labels if each[0] in kept)].append(value)
    combine = sum if kind == "sum" else max
    return {labels: combine(values) for labels, values in groups.items()}


def _quantile(quantile: float, buckets: Vector) -> Vector:
    """The upper bound of the bucket that holds it, which is coarser than Prometheus's guess."""
    bounds = sorted((float(dict(labels)["le"]), value) for labels, value in buckets.items())
    total = bounds[-1][1] if bounds else 0
    if not total:
        return {}
    return {frozenset(): next(bound for bound, count in bounds if count >= quantile * total)}
