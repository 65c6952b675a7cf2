"""Do the messengers work on all workers that use them?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from holdfast.domain.diagnosis.findings import Check, Finding, fine, warning
from holdfast.domain.messenger_overview import messenger_overviews
from holdfast.domain.workers import WorkerStatus


def judge_messengers(workers: Sequence[WorkerStatus]) -> Iterator[Finding]:
    """Without any, there is nothing to say: most applications have none."""
    for each in messenger_overviews(workers):
        facts = msgspec.to_builtins(each)
        if not each.down:
            yield fine(Check.MESSENGERS, each.sentence, **facts)
            continue
        yield warning(
            Check.MESSENGERS,
            each.sentence,
            advice="check that the broker is running, and that these workers can reach it and log"
            " in; they reconnect by themselves, and no job is lost",
            **facts,
        )
