"""The suite that every store passes: what `holdfast.stores.protocol` promises, as tests.

The author of a store gives pytest a subclass with a fixture named `harness`:

    class TestMyStore(StoreConformance):
        @pytest.fixture
        def harness(self) -> Harness: ...

It needs pytest and pytest-asyncio.
"""

import pytest

pytest.register_assert_rewrite(
    *(
        f"holdfast.testing.conformance.{module}"
        for module in (
            "breaking",
            "canceling",
            "capping",
            "claiming",
            "constraints",
            "crashing",
            "enqueueing",
            "history",
            "holding",
            "keys",
            "pausing",
            "probing",
            "races",
            "reading",
            "reclaiming",
            "seeing",
            "settling",
            "straying",
            "waking",
        )
    )
)

from holdfast.testing.conformance.breaking import Breaking  # noqa: E402
from holdfast.testing.conformance.canceling import Canceling  # noqa: E402
from holdfast.testing.conformance.capping import Capping  # noqa: E402
from holdfast.testing.conformance.claiming import Claiming  # noqa: E402
from holdfast.testing.conformance.constraints import Constraints  # noqa: E402
from holdfast.testing.conformance.crashing import Crashing  # noqa: E402
from holdfast.testing.conformance.enqueueing import Enqueueing  # noqa: E402
from holdfast.testing.conformance.harness import Harness  # noqa: E402
from holdfast.testing.conformance.history import History  # noqa: E402
from holdfast.testing.conformance.holding import Holding  # noqa: E402
from holdfast.testing.conformance.keys import Keys  # noqa: E402
from holdfast.testing.conformance.pausing import Pausing  # noqa: E402
from holdfast.testing.conformance.probing import Probing  # noqa: E402
from holdfast.testing.conformance.races import Races  # noqa: E402
from holdfast.testing.conformance.reading import Reading  # noqa: E402
from holdfast.testing.conformance.reclaiming import Reclaiming  # noqa: E402
from holdfast.testing.conformance.seeing import Seeing  # noqa: E402
from holdfast.testing.conformance.settling import Settling  # noqa: E402
from holdfast.testing.conformance.straying import Straying  # noqa: E402
from holdfast.testing.conformance.waking import Waking  # noqa: E402

__all__ = ["Harness", "PollingConformance", "StoreConformance"]


class PollingConformance(
    Enqueueing,
    Keys,
    Claiming,
    Holding,
    Settling,
    Straying,
    Reclaiming,
    Crashing,
    Canceling,
    Reading,
    Seeing,
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
    """All of it."""
