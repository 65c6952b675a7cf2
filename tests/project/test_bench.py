"""The bench, tried in small: its driver on real queues, its report and plots on known figures."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench.__main__ import BEGIN, END, GROWTH, PAGE, filled, main
from bench.against import CASES as COMPARED
from bench.against import Key, Pair, add, comparison, source_of
from bench.cases import ALL, percentile
from bench.driver import Driver, Subject, SubjectFailed
from bench.environments import environments
from bench.figures import Figure, Recorder, Recording, read
from bench.one import CASES, parsed
from bench.place import Place
from bench.plots import bars, lines, plots
from bench.report import report, subjects_table, targets_table
from bench.subjects import OWN
from bench.targets import MEMORY_CASE, POSTGRES, RAW_POSTGRES, SQLITE
from tests.support.forks import ROOT
from tests.support.postgres import Databases

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def place(tmp_path: Path, postgres_databases: Callable[[str], Databases]) -> Iterator[Place]:
    place = Place(tmp_path, tmp_path, address=postgres_databases("pg15").url(""))
    yield place
    place.close()


def own(name: str) -> Subject:
    return next(each for each in OWN if each.name == name and each.variant == "best")


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted({each.name for each in OWN}))
def test_every_job_is_handled_once_and_acknowledged(place: Place, name: str) -> None:
    with Driver(own(name), place) as driver:
        assert driver.rate("bulk", 50, "--payload", 100) > 0
        drained = driver.drain(50)
        assert driver.handled().jobs == 50
    assert drained.seconds > 0
    assert drained.worker_cpu_seconds > 0
    assert drained.memory_bytes > 10_000_000
    if own(name).service == "postgresql":
        # Each job is updated when it is claimed, and updated or moved when it has ended.
        assert drained.written.dead_tuples >= 2 * 50
        assert drained.written.commits >= 2
        assert drained.written.wal_bytes > 50 * 100


@pytest.mark.slow
def test_latencies_are_those_of_single_jobs(place: Place) -> None:
    with Driver(own(SQLITE), place) as driver:
        found = driver.latencies(3, gap_seconds=0.01, idle_seconds=0.0)
    assert len(found) == 3  # and not those of the jobs that got everything ready
    assert found == sorted(found)
    assert all(0 < seconds < 60 for seconds in found)


def test_a_drain_that_does_not_end_gives_no_figure(place: Place) -> None:
    with Driver(own("raw_sqlite"), place) as driver:
        driver.stall_seconds = 0.5
        driver.ask("bulk", 5)
        with pytest.raises(SubjectFailed, match=r"raw_sqlite: only \d of 6 handled"):
            driver.drain(6)


def test_an_adapter_that_fails_says_why(place: Place) -> None:
    broken = Subject("broken", "sqlite", (sys.executable, "-c", "raise SystemExit('no disk')"))
    with pytest.raises(SubjectFailed, match="broken: prepare failed:\nno disk"):
        Driver(broken, place).ask("prepare")


def drains(**values: float) -> Recording:
    """Figures of drains by one process, with one turn per subject."""
    return Recording(
        [
            Figure("drain", name.replace("_postgresql", "-postgresql"), value, "jobs/s", 1.0)
            for name, value in values.items()
        ]
    )


def row(recording: Recording, title: str) -> list[str]:
    (line,) = (each for each in targets_table(recording).splitlines() if title in each)
    return [cell.strip() for cell in line.strip("|").split("|")][1:]


def test_a_floor_of_two_bounds_is_kept_only_above_both() -> None:
    found = drains(holdfast_postgresql=3000, raw_postgres=6000, pgqueuer=2000, graphile=1000)
    assert row(found, "drain, 1 process") == [
        "2,100 (0.35 x raw), 4,000 (2 x PgQueuer)",
        "3,600 (0.6 x raw), 1,500 (1.5 x Graphile Worker)",
        "3,000 jobs/s",
        "-25 %",
        "-17 %",
    ]


def test_a_bound_without_a_measurement_is_reported_as_missing() -> None:
    found = drains(holdfast_postgresql=3000, raw_postgres=6000)
    floor, _, _, distance, _ = row(found, "drain, 1 process")
    assert floor == "2,100 (0.35 x raw), not measured (2 x PgQueuer)"
    assert distance == "+43 % (of what was measured)"
    assert row(Recording(), "drain, 1 process")[2] == "not measured"


def test_where_less_is_better_lower_values_are_above_the_floor() -> None:
    found = Recording([Figure(MEMORY_CASE, POSTGRES, 40.0, "MB")])
    assert row(found, "worker memory") == ["50.0", "35.0", "40.0 MB", "+20 %", "-14 %"]


def test_growth_is_compared_with_its_own_beginning() -> None:
    found = Recording(
        [
            Figure("drain after finished", POSTGRES, value, "jobs/s", x)
            for x, value in ((0, 1000.0), (500_000, 990.0), (5_000_000, 800.0))
        ]
    )
    assert row(found, "with 5,000,000 finished jobs") == [
        "900 (0.9 x without)",
        "1,000 (1 x without)",
        "800 jobs/s",
        "-11 %",
        "-20 %",
    ]


def test_a_ratio_is_taken_to_the_raw_loop_before_and_after() -> None:
    recording = Recording(
        [
            Figure("enqueue", RAW_POSTGRES, value, "jobs/s", turn=turn)
            for turn, value in ((1, 1000.0), (3, 3000.0), (5, 9000.0))
        ]
        + [Figure("enqueue", "pgqueuer", 1000.0, "jobs/s", turn=2)],
        settings={"pgqueuer (best)": {"service": "postgresql"}},
    )
    assert "| pgqueuer | 1,000 (0.50) |" in subjects_table(recording)


def test_another_queue_is_compared_by_its_share_of_the_raw_loop_beside_it() -> None:
    """The machine became twice as fast between the two."""
    turns = [(1, RAW_POSTGRES, 40.0), (2, POSTGRES, 30.0), (3, RAW_POSTGRES, 40.0)]
    turns += [(8, RAW_POSTGRES, 80.0), (9, "pgqueuer", 20.0), (10, RAW_POSTGRES, 80.0)]
    found = Recording(
        [Figure("drain", name, rate, "jobs/s", 1.0, turn=turn) for turn, name, rate in turns]
    )
    floor, _, _, distance, _ = row(found, "drain, 1 process")
    assert floor == "14.0 (0.35 x raw), 20.0 (2 x PgQueuer)"
    assert distance == "+50 %"


def test_the_report_says_what_was_missing_what_was_set_and_how_busy_the_machine_was() -> None:
    recording = drains(raw_postgres=6000)
    recording.figures.append(Figure("bulk", "rq", 5.0, "jobs/s", others=0.4))
    recording.missing["oban"] = "Python 3.12 or newer is not installed\ndetails"
    recording.settings["rq (best)"] = {"versions": "rq 1", "settings": "pipeline"}
    text = report(recording, [("Drain", "drain.svg")])
    assert "- oban: Python 3.12 or newer is not installed\n" in text
    assert "| rq (best) | rq 1 | pipeline |" in text
    assert "1 of 2 figures were taken while others used more than 15% of the machine" in text
    assert "![Drain](drain.svg)" in text


def test_figures_are_read_as_they_were_written(tmp_path: Path) -> None:
    figure = Figure("drain", "rq", 12.5, "jobs/s", 2.0, "default", 0.1, 7)
    recorder = Recorder(tmp_path / "new" / "figures.jsonl")
    recorder.figure(figure)
    recorder.surroundings({"memory": "4 GiB"})
    recorder.settings("rq (best)", {"versions": "rq 1"})
    recorder.missing("oban", "no")
    lines_written = (tmp_path / "new" / "figures.jsonl").read_text(encoding="utf-8").splitlines()
    assert read(lines_written) == Recording(
        [figure], {"memory": "4 GiB"}, {"rq (best)": {"versions": "rq 1"}}, {"oban": "no"}
    )


def test_bars_are_as_long_as_the_figures_are_large() -> None:
    picture = ElementTree.fromstring(bars("Drain", "jobs/s", {"a & b": 50.0, POSTGRES: 200.0}))
    lengths = [float(each.attrib["width"]) for each in picture.iter(f"{SVG}rect")][1:]
    assert lengths[0] == pytest.approx(4 * lengths[1])
    assert [each.text for each in picture.iter(f"{SVG}text")][1:] == [
        POSTGRES, "200", "a & b", "50.0"
    ]  # fmt: skip


def test_lines_start_at_zero_and_rise_to_the_maximum() -> None:
    picture = ElementTree.fromstring(lines("Growth", "ms", {"a": [(1, 10.0), (2, 20.0)]}))
    (curve,) = picture.iter(f"{SVG}polyline")
    (_, first), (_, last) = (map(float, each.split(",")) for each in curve.attrib["points"].split())
    grid = [float(each.attrib["d"].split()[1].split("H")[0]) for each in picture.iter(f"{SVG}path")]
    assert last == min(grid)
    assert first == pytest.approx((min(grid) + max(grid)) / 2)


def test_everything_that_can_be_compared_has_a_plot() -> None:
    recording = drains(raw_postgres=6000, holdfast_postgresql=3000)
    recording.figures += [
        Figure("drain by queues", POSTGRES, 10.0, "jobs/s", x) for x in (1.0, 200.0)
    ]
    recording.figures.append(Figure("import holdfast", POSTGRES, 50.0, "ms"))
    drawn = plots(recording)
    assert set(drawn) == {"bench-drain-1.svg", "bench-drain-by-queues.svg"}
    for _, picture in drawn.values():
        ElementTree.fromstring(picture)


def test_the_page_is_filled_between_its_markers_and_only_there() -> None:
    page = PAGE.read_text(encoding="utf-8")
    once = filled(page, "FIRST")
    assert filled(once, "SECOND") == once.replace("FIRST", "SECOND")
    assert once.partition(BEGIN)[0] == page.partition(BEGIN)[0]
    assert once.partition(END)[2] == page.partition(END)[2]


def test_percentiles_are_values_that_were_seen() -> None:
    hundred = [float(each) for each in range(1, 101)]
    assert [percentile(hundred, each) for each in (50, 95, 99)] == [50.0, 95.0, 99.0]
    assert percentile([7.0], 99) == 7.0


def test_every_listed_queue_has_an_adapter_and_pins_what_it_installs() -> None:
    for peer in environments().values():
        endings = [".mjs"] if peer.packages else ["_adapter.py"]
        assert [(ROOT / f"bench/adapters/{peer.name}{each}").exists() for each in endings] == [True]
        loose = [each for each in peer.requirements if "==" not in each]
        loose += [each for each in peer.packages if not re.search(r".@\d", each)]
        assert loose == []


def test_two_versions_are_compared_turn_by_turn() -> None:
    """The machine is twice as fast in the second turn, and both versions see that."""
    pairs: dict[Key, Pair] = {}
    for before, after in ((1000.0, 1500.0), (2000.0, 3000.0)):
        add(pairs, drains(holdfast_postgresql=before), drains(holdfast_postgresql=after))
    only_now = Recording(figures=[Figure("a new case", SQLITE, 1.0, "ms")])
    add(pairs, Recording(), only_now)
    (_, _, row) = comparison("v1", pairs).splitlines()
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells == [
        "holdfast-postgresql (best)", "drain", "1", "1,500 jobs/s", "2,250 jobs/s", "1.50",
        "1.50 to 1.50", "",
    ]  # fmt: skip


def test_a_comparison_unpacks_the_code_of_a_commit_once() -> None:
    source = source_of("HEAD")
    assert (source / "holdfast" / "app.py").exists()
    assert source_of("HEAD") == source


def test_a_comparison_that_can_not_run_says_so_before_it_measures(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for arguments, said in (
        (["--against", "no-such-commit"], "no commit 'no-such-commit'"),
        (["--against", "HEAD", "holdfast-sqlite/polish"], "no case 'polish'"),
    ):
        with pytest.raises(SystemExit):
            main(arguments)
        assert said in capsys.readouterr().err


def test_what_is_compared_exists() -> None:
    known = {(each.name, each.variant) for each in OWN}
    for name, variant, case in map(parsed, COMPARED):
        assert (name, variant) in known
        assert case in CASES


def test_each_case_of_a_run_can_be_named() -> None:
    for cases in (ALL, *GROWTH.values()):
        for case in cases:
            assert CASES[case.__name__] is case


def test_make_bench_runs_it() -> None:
    assert "scripts/bench" in (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "python -m bench" in (ROOT / "scripts/bench").read_text(encoding="utf-8")
