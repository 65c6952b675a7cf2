"""The alert rules and the dashboard name metrics, and labels of them, that a real worker shows."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from holdfast import Holdfast
from holdfast.observability.metrics import ENQUEUED, METRICS
from tests.promises.handlers import Jobs
from tests.promises.stage import Stage
from tests.support.api import served
from tests.support.crashing import make_suspects
from tests.support.forks import ROOT
from tests.support.postgres import free_port
from tests.support.processes import wait_until
from tests.support.rabbitmq import Names
from tests.support.scraping import Scraped, get

pytestmark = pytest.mark.heavy

DEPLOY = ROOT / "deploy"
RULES: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((DEPLOY / "holdfast.rules.yml").read_text(encoding="utf-8"))[
        "groups"
    ]
    for rule in group["rules"]
]
DASHBOARD: dict[str, Any] = json.loads(
    (DEPLOY / "grafana-dashboard.json").read_text(encoding="utf-8")
)
README = (DEPLOY / "README.md").read_text(encoding="utf-8")
ADDED_BY_PROMETHEUS = {"instance", "job"}
OF_THE_API = "holdfast_http_"
OPEN_BREAKER = """INSERT INTO breakers (key, window_seconds, probe_seconds, opened_at, changed_at)
    VALUES ('api', 60, 60, now(), now())"""
SELECTOR = re.compile(r"(holdfast_\w+)(?:\{([^}]*)\})?")
AGGREGATION = re.compile(r"\b(?:sum|max|min|avg|count) by \(([^)]*)\) \(")
FUNCTION = re.compile(r"\b([a-z_]+) ?\(")
FUNCTIONS = {"absent", "by", "histogram_quantile", "increase", "max", "on", "rate", "sum"}


class Expression(NamedTuple):
    """A PromQL expression, with the texts that display its result."""

    place: str
    promql: str
    shown: str = ""

    def selectors(self) -> Iterator[tuple[str, set[str]]]:
        for name, matchers in SELECTOR.findall(self.promql):
            yield name, set(re.findall(r"(\w+)(?:=~|!~|!=|=)", matchers))

    def aggregations(self) -> Iterator[tuple[set[str], str]]:
        """The labels that a sum keeps, and its operand."""
        for match in AGGREGATION.finditer(self.promql):
            kept = {label.strip() for label in match[1].split(",")}
            yield kept, enclosed(self.promql, match.end())

    def shown_labels(self) -> set[str]:
        found = re.findall(r"\$labels\.(\w+)|\{\{ ?(\w+) ?\}\}", self.shown)
        return {label for pair in found for label in pair if label}


def enclosed(text: str, start: int) -> str:
    """What stands from here to the parenthesis that closes."""
    depth = 1
    for end in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[end], 0)
        if depth == 0:
            return text[start:end]
    raise AssertionError(f"a parenthesis is not closed: {text}")


def expressions() -> Iterator[Expression]:
    for rule in RULES:
        shown = " ".join(rule.get("annotations", {}).values())
        yield Expression(rule.get("alert") or rule["record"], rule["expr"], shown)
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            yield Expression(panel["title"], target["expr"], target["legendFormat"])
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            asked = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["definition"])
            assert asked is not None
            yield Expression(variable["name"], f"max by ({asked[2]}) ({asked[1]})")


def recorded() -> dict[str, set[str]]:
    """The labels of what the recording rules make."""
    made = {}
    for rule in RULES:
        if "record" in rule:
            (kept, _), *_ = Expression("", rule["expr"]).aggregations()
            made[rule["record"]] = kept - {"le"}
    return made


@pytest.fixture
async def stage(store_url: str, tmp_path: Path) -> AsyncIterator[Stage]:
    made = Stage(store_url, tmp_path)
    try:
        yield made
    finally:
        await made.close()


async def shown_by_a_worker(stage: Stage, rabbitmq: Names) -> Scraped:
    """Scrape a worker that has seen a bit of everything; who has enqueued it; and an API."""
    port = free_port()
    await stage.hf.metrics()
    suspect = await stage.jobs.quick.enqueue()
    await make_suspects(stage.hf, [suspect])
    await stage.jobs.unsteady.enqueue(1)
    await stage.jobs.quick.options(delay_seconds=3600).enqueue()
    await stage.jobs.quick.options(queue="unserved", expires_in_seconds=0).enqueue()
    await stage.fetch(OPEN_BREAKER)
    messengers = f"{rabbitmq.url}?exchange={rabbitmq.exchange}&queue={rabbitmq.queue}"
    environment = {"HOLDFAST_MESSENGERS": messengers}
    stage.worker(f"--metrics-port={port}", "--queues=default", environment=environment)
    async with Holdfast(stage.url, messengers=[messengers]) as sending:
        await Jobs(sending).quick.enqueue()
    last: list[Scraped] = []

    async def complete() -> bool:
        try:
            told = await get(port)
        except OSError:
            return False
        last.append(Scraped(told))
        of_workers = {each.name for each in METRICS if not each.name.startswith(OF_THE_API)}
        return of_workers - {ENQUEUED.name} <= names(last[-1])

    await wait_until(complete, lambda: f"all metrics:\n{last[-1].text if last else stage.logs()}")
    last[-1].samples += Scraped(await stage.hf.metrics()).families["holdfast_enqueued"].samples
    async with served(Holdfast(stage.url)) as client:
        await client.get("/v1/jobs")
        told = Scraped((await client.get("/metrics")).text)
    last[-1].samples += [each for each in told.samples if each.name.startswith(OF_THE_API)]
    return last[-1]


def names(scraped: Scraped) -> set[str]:
    return {sample.name.removesuffix("_bucket") for sample in scraped.samples}


@pytest.mark.parametrize("store_url", ["pg15"], indirect=True)
async def test_rules_and_dashboard_name_what_a_worker_shows(stage: Stage, rabbitmq: Names) -> None:
    scraped = await shown_by_a_worker(stage, rabbitmq)
    known = {sample.name: scraped.labels(sample.name) for sample in scraped.samples} | recorded()
    problems = [problem for each in expressions() for problem in wrong(each, known)]
    assert problems == []
    for metric in METRICS:
        sample = f"{metric.name}_count" if metric.kind == "histogram" else metric.name
        assert known[sample] == set(metric.labels), metric.name


def wrong(expression: Expression, known: Mapping[str, set[str]]) -> Iterator[str]:
    where = expression.place
    available: set[str] = set(ADDED_BY_PROMETHEUS)
    for name, matched in expression.selectors():
        if name not in known:
            yield f"{where}: there is no {name}"
        elif missing := matched - known[name] - ADDED_BY_PROMETHEUS:
            yield f"{where}: {name} has no label {missing}"
        available |= known.get(name, set())
    for kept, inner in expression.aggregations():
        for name, _ in Expression(where, inner).selectors():
            if missing := kept - known.get(name, set()) - ADDED_BY_PROMETHEUS:
                yield f"{where}: {name} has no label {missing}"
    kept_by_all = [kept for kept, _ in expression.aggregations()]
    visible = set[str]().union(*kept_by_all) if kept_by_all else available
    if missing := expression.shown_labels() - visible:
        yield f"{where}: the text shows {missing}, which the expression does not keep"


def test_mistakes_are_found() -> None:
    known = {"holdfast_a": {"queue"}}
    for promql in (
        "holdfast_b",
        'holdfast_a{name="x"}',
        "sum by (name) (rate(holdfast_a[5m]))",
    ):
        assert len(list(wrong(Expression("here", promql), known))) == 1
    shown = Expression("here", "sum by (queue) (holdfast_a)", "{{ $labels.name }}")
    assert len(list(wrong(shown, known))) == 1
    right = Expression("here", 'max by (queue) (holdfast_a{queue="x"})', "{{queue}}")
    assert list(wrong(right, known)) == []


@pytest.mark.parametrize("expression", list(expressions()), ids=lambda each: each.place)
def test_an_expression_is_whole(expression: Expression) -> None:
    assert list(expression.selectors())
    for opening, closing in ("()", "[]", "{}"):
        assert expression.promql.count(opening) == expression.promql.count(closing)
    assert set(FUNCTION.findall(expression.promql)) <= FUNCTIONS | {"and", "unless"}
    for window in re.findall(r"\[([^\]]*)\]", expression.promql):
        assert re.fullmatch(r"\d+[smhd]|\$__rate_interval", window)


def test_every_alert_has_a_severity_and_says_what_to_do() -> None:
    alerts = [rule for rule in RULES if "alert" in rule]
    assert len({rule["alert"] for rule in alerts}) == len(alerts)
    for rule in alerts:
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert set(rule["annotations"]) == {"summary", "description"}
    listed = re.findall(r"^\| (Holdfast\w+) \|", README, re.MULTILINE)
    assert listed == [rule["alert"] for rule in alerts]


def test_the_names_of_the_rates_are_recorded() -> None:
    assert {"holdfast_processing_rate", "holdfast_retry_rate"} <= set(recorded())


def test_the_panels_of_the_dashboard_fit_beside_each_other() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {
            (at["x"] + across, at["y"] + down)
            for across in range(at["w"])
            for down in range(at["h"])
        }
        assert at["x"] + at["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells
        if panel["type"] != "row":
            assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]


def test_the_dashboard_shows_every_metric() -> None:
    shown = {
        name.removesuffix("_bucket").removesuffix("_count")
        for expression in expressions()
        for name, _ in expression.selectors()
    }
    assert {metric.name for metric in METRICS} <= shown
