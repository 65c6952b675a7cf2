"""Compute: jobs whose inputs and outputs are checked against contracts, solved by an AppServer."""

from holdfast_systems.compute.service import Compute
from holdfast_systems.compute.settings import ComputeSettings

__all__ = ["Compute", "ComputeSettings"]
