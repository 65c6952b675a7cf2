"""Measure one case of one subject: `python -m bench.one holdfast-sqlite:best/enqueue`."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from bench import costs, growth, http, messengers
from bench.cases import ALL, QUICK, Measuring, Scale
from bench.figures import Recorder
from bench.growth import Case
from bench.parts import tell
from bench.place import made_place
from bench.subjects import find_subjects, started_services

CASES: Mapping[str, Case] = {
    case.__name__: case
    for case in (
        *ALL,
        *growth.POSTGRES,
        *growth.SQLITE,
        *http.POSTGRES,
        messengers.pick_up,
        messengers.pick_up_by_service_bus,
        costs.costs,
    )
}


class UnknownCase(ValueError):
    """There is no such subject, variant or case; the message lists what there is."""


def parsed(named: str) -> tuple[str, str, str]:
    """The subject, its variant and the case of `subject[:variant]/case`."""
    subject, _, case = named.partition("/")
    name, _, variant = subject.partition(":")
    if case not in CASES:
        raise UnknownCase(f"no case {case!r} in {named!r}: there are {', '.join(CASES)}")
    return name, variant or "best", case


def measure(named: str, scale: Scale, recorder: Recorder) -> None:
    name, variant, case = parsed(named)
    with ExitStack() as stack:
        subjects, _ = find_subjects([name], quick=False)
        found = [each for each in subjects if each.variant == variant]
        if not found:
            raise UnknownCase(f"no subject {name!r} with the variant {variant!r}")
        addresses, _ = stack.enter_context(started_services({found[0].service}))
        place = stack.enter_context(
            made_place(with_postgres=found[0].service == "postgresql", addresses=addresses)
        )
        CASES[case](Measuring(place, scale, recorder.figure, tell), found[0])


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("case", help="subject[:variant]/case")
    parser.add_argument("--quick", action="store_true", help="on the scale of a quick run")
    parser.add_argument("--out", type=Path, default=Path("/dev/stdout"), help="a file of figures")
    options = parser.parse_args(arguments)
    try:
        measure(options.case, QUICK if options.quick else Scale(), Recorder(options.out))
    except UnknownCase as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
