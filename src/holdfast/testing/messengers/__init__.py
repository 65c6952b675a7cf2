"""The conformance suite for wake-ups: they save time, and never carry correctness.

To test a messenger, write a subclass with a fixture named `wiring`:

    class TestMyMessenger(MessengerConformance):
        @pytest.fixture
        def wiring(self, tmp_path: Path) -> Wiring:
            return Wiring(f"sqlite:///{tmp_path / 'jobs.db'}", lambda: [MyMessenger(...)])

The suite drops, doubles, reorders and delays messages and cuts connections. Each time, workers must
do every job once. The jobs are in a database that wakes nobody itself. `WakeupConformance` is for a
database's own wake-ups, and `PollingConformance` for polling.

The suite needs pytest and pytest-asyncio.
"""

from pkgutil import iter_modules

import pytest

pytest.register_assert_rewrite(*(f"{__name__}.{each.name}" for each in iter_modules(__path__)))

from holdfast.testing.messengers.faults import Fault, Faults, FaultyMessenger  # noqa: E402
from holdfast.testing.messengers.posting import MessengerConformance  # noqa: E402
from holdfast.testing.messengers.waking import (  # noqa: E402
    PollingConformance,
    WakeupConformance,
)
from holdfast.testing.messengers.wiring import Wiring  # noqa: E402

__all__ = [
    "Fault", "Faults", "FaultyMessenger", "MessengerConformance", "PollingConformance",
    "WakeupConformance", "Wiring",
]  # fmt: skip
