"""Why a job is not running, without what belongs to operators and other tenants. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from holdfast.domain.why import Reason, Why

_FACTS: Final = frozenset(
    {
        "state",
        "queue",
        "name",
        "attempt",
        "attempts",
        "max_attempts",
        "error_code",
        "error_text",
        "crashes",
        "releases",
        "releases_max",
        "run_at",
        "started_at",
        "lease_expires_at",
        "failed_at",
        "ended_at",
        "expires_at",
        "paused_at",
        "breaker",
        "opened_at",
        "next_probe_at",
        "probes",
        "probes_free",
    }
)

_ALONE: Final = "{sentence}"  # the full sentence is about the job alone

# Which of them it is tells how much work the other tenants have.
_IN_LINE: Final = frozenset({Reason.QUEUE_FULL, Reason.BUSY, Reason.JOBS_AHEAD, Reason.NEXT})

_SENTENCES: Final[Mapping[Reason, str]] = {
    Reason.ENDED: _ALONE,
    Reason.EXPIRED: _ALONE,
    Reason.LEASED: "a worker has leased it: attempt {attempt} of {max_attempts}",
    Reason.LEASE_EXPIRED: (
        "the lease of its worker expired, and the next live worker reclaims it:"
        " attempt {attempt} of {max_attempts}"
    ),
    Reason.WAITING_FOR_RETRY: _ALONE,
    Reason.HANDED_BACK: (
        "it is waiting for a worker that can run it: {error_text};"
        " handed back {releases} of at most {releases_max} times"
    ),
    Reason.NOT_DUE: _ALONE,
    Reason.QUEUE_PAUSED: "queue {queue} is paused",
    Reason.BREAKER_OPEN: "breaker {breaker} is open; its jobs are parked until it closes",
    Reason.BREAKER_UNPARKING: (
        "breaker {breaker} has closed, and workers are releasing the jobs it had parked"
    ),
    Reason.WAITING_FOR_LEASE: (
        "workers lease {name} over HTTP, and none has asked for this job since it became due"
    ),
    Reason.NO_WORKER: "no live worker serves queue {queue}",
    Reason.UNKNOWN_NAME: "no live worker for queue {queue} knows the job name {name}",
    Reason.SUSPECT: _ALONE,
    Reason.DUE: _ALONE,
    **dict.fromkeys(_IN_LINE, "it is due, and is waiting for its turn in queue {queue}"),
}


def for_tenant(why: Why) -> Why:
    """Keep the code, what is known about the job itself, and a sentence made of that. All codes
    that depend on the jobs of others become DUE."""
    facts = {name: value for name, value in why.facts.items() if name in _FACTS}
    sentence = _SENTENCES[why.code].format_map({**facts, "sentence": why.sentence})
    code = Reason.DUE if why.code in _IN_LINE else why.code
    return msgspec.structs.replace(why, code=code, sentence=sentence, facts=facts)
