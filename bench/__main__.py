"""`make bench`: measure Holdfast, the raw loops and other job queues; write figures and a report.

    python -m bench [--quick] [--only NAMES] [--out FOLDER]
    python -m bench --report          # from the figures of the last run
    python -m bench --against REVISION [SUBJECT/CASE ...]   # beside the code of that commit

A whole run also fills the part of docs/benchmarks.md that lies between its markers.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

from bench import against, figures, growth, http, messengers
from bench.cases import ALL, QUICK, Measuring, Scale, drain
from bench.driver import Driver, Subject, SubjectFailed
from bench.figures import Figure, Recorder, Recording
from bench.machine import description
from bench.parts import tell
from bench.place import Place, made_place
from bench.plots import plots
from bench.report import report
from bench.subjects import find_subjects, started_services
from bench.targets import POSTGRES, RAW, SQLITE

ROOT = Path(__file__).parent.parent
OUT = ROOT / ".cache/bench/results"
PAGE = ROOT / "docs/benchmarks.md"
PICTURES = ROOT / "docs/pictures"
MESSENGERS = (messengers.pick_up, messengers.pick_up_by_service_bus)
GROWTH = {
    POSTGRES: (*growth.POSTGRES, *http.POSTGRES, *MESSENGERS),
    SQLITE: (*growth.SQLITE, *http.SQLITE),
}
QUICK_GROWTH = {
    POSTGRES: (*growth.QUICK, *http.POSTGRES, *MESSENGERS),
    SQLITE: http.SQLITE,
}
Cases = Mapping[str, Sequence[growth.Case]]
BEGIN, END = "<!-- figures -->", "<!-- end of figures -->"


class Run:
    """Run all turns in sequence; report a subject that fails and leave it out."""

    def __init__(self, place: Place, scale: Scale, recorder: Recorder, cases: Cases) -> None:
        self._recorder = recorder
        self._cases = cases
        self._described: set[Subject] = set()
        self._measuring = Measuring(place, scale, self._note, tell)
        self._began = time.monotonic()

    def run(self, subjects: Sequence[Subject]) -> None:
        raw = {each.name: each for each in subjects if each.name in RAW.values()}
        for subject in subjects:
            if subject.name in raw:
                continue
            beside = raw.get(RAW.get(subject.service, RAW["postgresql"]))
            for case in self._cases_of(subject):
                self._take_turns(subject, beside, case)
        for subject in subjects:
            if _is_ours(subject):
                self._measuring.turn += 1
                for case in self._cases.get(subject.name, ()):
                    self._try(case, subject)

    def _cases_of(self, subject: Subject) -> Sequence[growth.Case]:
        return (drain,) if self._measuring.scale.only_drains_of(subject) else ALL

    def _take_turns(self, subject: Subject, raw: Subject | None, case: growth.Case) -> None:
        """Measure the raw loop before and after each subject, case by case: figures that are
        compared are measured within seconds."""
        if raw is not None:
            self._take_turn(raw, case)
        scale = self._measuring.scale
        rounds = scale.drain_rounds if case is drain else scale.short_rounds
        for _ in range(rounds if _is_ours(subject) else 1):
            self._take_turn(subject, case)
            if raw is not None:
                self._take_turn(raw, case)

    def _take_turn(self, subject: Subject, case: growth.Case) -> None:
        self._measuring.turn += 1
        if subject not in self._described:
            self._described.add(subject)
            self._try(self._describe, subject)
        self._try(case, subject)

    def _try(self, case: growth.Case, subject: Subject) -> None:
        try:
            case(self._measuring, subject)
        except Exception as error:
            # Whatever it is: the hour that a whole run takes must not be lost for one case.
            self._recorder.missing(subject.name, str(error))
            tell("")
            if not isinstance(error, SubjectFailed):
                traceback.print_exc()
            print(error, file=sys.stderr, flush=True)

    def _describe(self, measuring: Measuring, subject: Subject) -> None:
        with Driver(subject, measuring.place) as driver:
            told = driver.ask("settings")
        name = f"{subject.name} ({subject.variant})"
        self._recorder.settings(name, {**told, "service": subject.service})

    def _note(self, figure: Figure) -> None:
        self._recorder.figure(figure)
        minutes, seconds = divmod(int(time.monotonic() - self._began), 60)
        at = f" at {figure.x:,.0f}" if figure.x else ""
        busy = f"  (others: {figure.others:.0%})" if figure.others > 0.15 else ""
        tell("")
        print(
            f"{minutes:3}:{seconds:02} {figure.subject} ({figure.variant}) {figure.case}{at}:"
            f" {figure.value:,.1f} {figure.unit}{busy}",
            flush=True,
        )


def _is_ours(subject: Subject) -> bool:
    return subject.name in (POSTGRES, SQLITE) and subject.variant == "best"


def measure(out: Path, scale: Scale, names: Sequence[str], *, quick: bool) -> None:
    recorder = Recorder(out / "figures.jsonl")
    with ExitStack() as stack:
        subjects, missing = find_subjects(names, quick=quick)
        addresses, unavailable = stack.enter_context(
            started_services({each.service for each in subjects})
        )
        with_postgres = any(each.service == "postgresql" for each in subjects)
        place = stack.enter_context(made_place(with_postgres=with_postgres, addresses=addresses))
        for each in [*missing, *unavailable]:
            recorder.missing(each.name, each.reason)
        left_out = {each.name for each in unavailable}
        recorder.surroundings(
            {
                "measured": f"{datetime.now(UTC):%Y-%m-%d}",
                "scale": "quick" if quick else "whole",
                **description(),
                "PostgreSQL": ", ".join(
                    f"{name}={value}" for name, value in place.server_settings().items()
                ),
            }
        )
        run = Run(place, scale, recorder, QUICK_GROWTH if quick else GROWTH)
        run.run([each for each in subjects if each.service not in left_out])
    tell("")


def write_report(out: Path, *, publish: bool) -> str:
    lines = (out / "figures.jsonl").read_text(encoding="utf-8").splitlines()
    recording = figures.read(lines)
    drawn = plots(recording)
    for name, (_, picture) in drawn.items():
        (out / name).write_text(picture, encoding="utf-8")
    titles = [(title, name) for name, (title, _) in drawn.items()]
    text = report(recording, titles)
    (out / "report.md").write_text(f"# Benchmarks\n\n{text}", encoding="utf-8")
    if publish:
        _publish(recording, {name: picture for name, (_, picture) in drawn.items()})
    return text


def _publish(recording: Recording, pictures: dict[str, str]) -> None:
    for name, picture in pictures.items():
        (PICTURES / name).write_text(picture, encoding="utf-8")
    titles = [(title, f"pictures/{name}") for name, (title, _) in plots(recording).items()]
    PAGE.write_text(
        filled(PAGE.read_text(encoding="utf-8"), report(recording, titles)), encoding="utf-8"
    )


def filled(page: str, text: str) -> str:
    """Put the text between the page's markers."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{text}\n{END}{after}"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a selection of about seven minutes")
    parser.add_argument("--only", default="", help="names of subjects, with commas between")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--report", action="store_true", help="of the last run, measuring nothing")
    parser.add_argument("--against", metavar="REVISION", help="compare with this commit's code")
    parser.add_argument("cases", nargs="*", help="with --against: subject[:variant]/case")
    options = parser.parse_args(arguments)
    names = [name for name in options.only.split(",") if name]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that everything is cleaned up
    if options.against:
        try:
            print(against.compare(options.against, options.cases, quick=options.quick))
        except ValueError as error:
            parser.error(str(error))
        return
    if not options.report:
        scale = QUICK if options.quick else Scale()
        measure(options.out, scale, names, quick=options.quick)
    whole = not options.quick and not names and options.out == OUT and not options.report
    print(write_report(options.out, publish=whole))
    print(f"{options.out}/report.md")


if __name__ == "__main__":
    main()
