"""The suite that every store passes: what `holdfast.stores.protocol` promises, as tests.

The author of a store gives pytest a subclass with a fixture named `harness`:

    class TestMyStore(StoreConformance, store=MyStore):
        @pytest.fixture
        def harness(self) -> Harness: ...

It runs the tests of the core, and of the capabilities that the store has. What it leaves out is
listed as `test_left_out[...]`, one line for each capability that the store lacks. `kind=Kind(...)`
says what jobs it stores, if not all, and which `Room` it lacks.

It needs pytest and pytest-asyncio.
"""

from typing import Any

import pytest

pytest.register_assert_rewrite(
    *(
        f"holdfast.testing.conformance.{module}"
        for module in (
            "breakers",
            "cancel",
            "caps",
            "claim",
            "constraints",
            "crashes",
            "enqueue",
            "history",
            "keys",
            "pause",
            "probes",
            "queries",
            "races",
            "reclaim",
            "renew",
            "settle",
            "strays",
            "wakeups",
            "workers",
        )
    )
)

from holdfast.stores.protocol import CAPABILITIES, Store  # noqa: E402
from holdfast.testing.conformance.breakers import Breaking  # noqa: E402
from holdfast.testing.conformance.cancel import Canceling  # noqa: E402
from holdfast.testing.conformance.caps import Capping  # noqa: E402
from holdfast.testing.conformance.claim import Claiming  # noqa: E402
from holdfast.testing.conformance.constraints import Constraints  # noqa: E402
from holdfast.testing.conformance.crashes import Crashing  # noqa: E402
from holdfast.testing.conformance.enqueue import Enqueueing  # noqa: E402
from holdfast.testing.conformance.harness import Harness, Kind, Room, needs_of  # noqa: E402
from holdfast.testing.conformance.history import History  # noqa: E402
from holdfast.testing.conformance.keys import Keys  # noqa: E402
from holdfast.testing.conformance.pause import Pausing  # noqa: E402
from holdfast.testing.conformance.probes import Probing  # noqa: E402
from holdfast.testing.conformance.queries import Reading  # noqa: E402
from holdfast.testing.conformance.races import Races  # noqa: E402
from holdfast.testing.conformance.reclaim import Reclaiming  # noqa: E402
from holdfast.testing.conformance.renew import Renewing  # noqa: E402
from holdfast.testing.conformance.settle import Settling  # noqa: E402
from holdfast.testing.conformance.strays import Straying  # noqa: E402
from holdfast.testing.conformance.wakeups import Waking  # noqa: E402
from holdfast.testing.conformance.workers import Presence  # noqa: E402

__all__ = ["Harness", "Kind", "PollingConformance", "Room", "StoreConformance"]


class PollingConformance(
    Enqueueing,
    Keys,
    Claiming,
    Renewing,
    Settling,
    Straying,
    Reclaiming,
    Crashing,
    Canceling,
    Reading,
    Presence,
    Pausing,
    Capping,
    Breaking,
    Probing,
    History,
    Races,
    Constraints,
):
    """For a store that has no wake-ups where it is: its jobs are found by polling."""


class StoreConformance(PollingConformance, Waking):
    """All of it, or what concerns this store."""

    def __init_subclass__(cls, *, store: type | None = None, kind: Kind | None = None) -> None:
        super().__init_subclass__()
        if kind is not None:
            cls.kind = kind
        if store is not None:
            _leave_out(cls, store)


def _leave_out(suite: type[StoreConformance], store: type) -> None:
    if missing := _missing_verbs(store, Store):
        raise TypeError(f"{store.__name__} lacks verbs of the core: {', '.join(missing)}")
    absent = {*suite.kind.lacks, *(each for each in CAPABILITIES if not issubclass(store, each))}
    lacks: dict[str, int] = {}
    for name in [name for name in dir(suite) if name.startswith("test_")]:
        for each in needs_of(suite, name) & absent:
            told = _told(store, each)
            lacks[told] = lacks.get(told, 0) + 1
            setattr(suite, name, None)

    @pytest.mark.parametrize(
        "what", [f"{what}: {tests} tests" for what, tests in sorted(lacks.items())]
    )
    async def test_left_out(self: Any, what: str) -> None:
        """Only to be seen: the store lacks this, and the tests of it are left out."""

    if lacks:
        suite.test_left_out = test_left_out  # type: ignore[attr-defined]


def _told(store: type, absent: type | Room) -> str:
    """What the store lacks. Of a capability that it has in part, also the verbs to add."""
    if isinstance(absent, Room):
        return str(absent)
    missing = _missing_verbs(store, absent)
    partial = len(missing) < len(_verbs(absent))
    return f"{absent.__name__} without {', '.join(missing)}" if partial else absent.__name__


def _missing_verbs(store: type, protocol: type) -> list[str]:
    return [verb for verb in _verbs(protocol) if not hasattr(store, verb)]


def _verbs(protocol: type) -> list[str]:
    return [name for name in vars(protocol) if not name.startswith("_")]
