"""Metrics, read as Prometheus reads them."""

from __future__ import annotations

import asyncio
from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families

from tests.support.processes import WAIT_SECONDS, wait_until


class Scraped:
    """The samples of an exposition."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.families = {family.name: family for family in text_string_to_metric_families(text)}
        self.samples = [each for family in self.families.values() for each in family.samples]

    def value(self, name: str, /, **labels: str) -> float | None:
        """The sum over all series with these labels; None if there are none."""
        found = [
            sample.value
            for sample in self.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        ]
        return sum(found) if found else None

    def labels(self, name: str) -> set[str]:
        """The labels that a sample of this name has."""
        return {label for each in self.samples if each.name == name for label in each.labels}


async def get(port: int, path: str = "/metrics") -> str:
    def read() -> str:
        with urlopen(f"http://127.0.0.1:{port}{path}", timeout=WAIT_SECONDS) as answer:
            return str(answer.read().decode())

    return await asyncio.to_thread(read)


async def scrape(port: int) -> Scraped:
    return Scraped(await get(port))


async def scraped(port: int, name: str, value: float, /, **labels: str) -> Scraped:
    """Scrape until a series has this value."""
    last: list[Scraped] = []

    async def has_come() -> bool:
        try:
            last.append(await scrape(port))
        except OSError:  # it does not listen yet
            return False
        return last[-1].value(name, **labels) == value

    await wait_until(
        has_come, lambda: f"{name} {labels} {value}:\n{last[-1].text if last else 'nothing'}"
    )
    return last[-1]
