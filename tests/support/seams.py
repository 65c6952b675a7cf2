"""A real machine whose monotonic clock the test moves."""

from __future__ import annotations

from holdfast.runtime.seam import Seam


class HandSeam(Seam):
    """A test moves its clock, and every reading moves it by `step_seconds`."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 1000.0
        self.step_seconds = 0.0

    def monotonic(self) -> float:
        self.seconds += self.step_seconds
        return self.seconds
