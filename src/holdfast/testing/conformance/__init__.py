"""The conformance suite: the promises of `holdfast.stores.protocol`, as tests for every store.

To test a store, write a subclass with a fixture named `harness`:

    class TestMyStore(StoreConformance, store=MyStore):
        @pytest.fixture
        def harness(self) -> Harness: ...

It runs the tests of the core, and of the capabilities that the store has. Each capability that the
store lacks is listed as a `test_left_out[...]`. `kind=Kind(...)` describes the jobs that the store
accepts, if not all, and the `Room` that it lacks.

The suite needs pytest and pytest-asyncio.
"""

from collections import Counter
from pkgutil import iter_modules
from typing import Any

import pytest

pytest.register_assert_rewrite(*(f"{__name__}.{each.name}" for each in iter_modules(__path__)))

from holdfast.stores.protocol import CAPABILITIES, Store  # noqa: E402
from holdfast.testing.conformance.breakers import Breaking  # noqa: E402
from holdfast.testing.conformance.cancel import Canceling  # noqa: E402
from holdfast.testing.conformance.claim import Claiming  # noqa: E402
from holdfast.testing.conformance.constraints import Constraints  # noqa: E402
from holdfast.testing.conformance.crashes import Crashing  # noqa: E402
from holdfast.testing.conformance.enqueue import Enqueueing, Keys  # noqa: E402
from holdfast.testing.conformance.harness import Harness, Kind, Room, needs_of  # noqa: E402
from holdfast.testing.conformance.history import History  # noqa: E402
from holdfast.testing.conformance.leases import Leasing  # noqa: E402
from holdfast.testing.conformance.probes import Probing  # noqa: E402
from holdfast.testing.conformance.queries import Reading  # noqa: E402
from holdfast.testing.conformance.queues import Capping, Pausing  # noqa: E402
from holdfast.testing.conformance.races import Races  # noqa: E402
from holdfast.testing.conformance.reclaim import Reclaiming, Straying  # noqa: E402
from holdfast.testing.conformance.renew import Renewing  # noqa: E402
from holdfast.testing.conformance.settle import Settling  # noqa: E402
from holdfast.testing.conformance.wakeups import Waking  # noqa: E402
from holdfast.testing.conformance.watch import Watch  # noqa: E402
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
    Watch,
    Presence,
    Pausing,
    Capping,
    Breaking,
    Probing,
    Leasing,
    History,
    Races,
    Constraints,
):
    """For a store whose workers find jobs by polling alone, without wake-ups."""


class StoreConformance(PollingConformance, Waking):
    """All tests, or those that apply to `store`."""

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
    lacks: Counter[str] = Counter()
    for name in [name for name in dir(suite) if name.startswith("test_")]:
        for each in needs_of(suite, name) & absent:
            lacks[_describe(store, each)] += 1
            setattr(suite, name, None)

    @pytest.mark.parametrize(
        "what", [f"{what}: {tests} tests" for what, tests in sorted(lacks.items())]
    )
    async def test_left_out(self: Any, what: str) -> None:
        """Show that the store lacks this, and that its tests are left out."""

    if lacks:
        suite.test_left_out = test_left_out  # type: ignore[attr-defined]


def _describe(store: type, absent: type | Room) -> str:
    """Name what the store lacks; for a partial capability, also the missing verbs."""
    if isinstance(absent, Room):
        return str(absent)
    missing = _missing_verbs(store, absent)
    partial = len(missing) < len(_verbs(absent))
    return f"{absent.__name__} without {', '.join(missing)}" if partial else absent.__name__


def _missing_verbs(store: type, protocol: type) -> list[str]:
    return [verb for verb in _verbs(protocol) if not hasattr(store, verb)]


def _verbs(protocol: type) -> list[str]:
    return [name for name in vars(protocol) if not name.startswith("_")]
