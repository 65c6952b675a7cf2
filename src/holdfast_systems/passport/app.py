"""What `holdfast serve holdfast_systems.passport.app:hf --worker` serves and runs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from holdfast import Holdfast
from holdfast.webhooks import Webhooks
from holdfast_systems.environment import (
    Variables,
    is_set,
    milliseconds,
    read_variables,
    without_given,
)
from holdfast_systems.passport.keys import check_variables
from holdfast_systems.passport.preset import BPC, TIMEOUT_SECONDS
from holdfast_systems.passport.queue import queue_from
from holdfast_systems.passport.system import Passport

DEFAULTS = {"lease_seconds": 60.0, "poll_seconds": 1.0}
_VARIABLES: Variables = {
    "BPC_JOBS_LEASE_SECONDS": ("lease_seconds", float),
    "BPC_JOBS_LEASE_RENEW_SECONDS": ("renew_seconds", float),
    "BPC_JOBS_POLL_INTERVAL_MS": ("poll_seconds", milliseconds),
}


def settings_from(environment: Mapping[str, str]) -> dict[str, Any]:
    """Read the engine's settings under this system's names."""
    settings = without_given(environment, DEFAULTS) | read_variables(environment, _VARIABLES)
    if "lease_seconds" in settings:
        renewal = {"renew_seconds": settings["lease_seconds"] / 2}
        settings = without_given(environment, renewal) | settings
    return settings


check_variables(os.environ)
hf = Holdfast(**settings_from(os.environ), **queue_from(os.environ))
# For development. Without it, webhooks go to https:// URLs with public addresses only.
_is_local = is_set(os.environ, "BPC_WEBHOOKS_LOCAL")
webhooks = Webhooks(
    hf,
    presets=[BPC],
    https_only=not _is_local,
    allow_private_addresses=_is_local,
    timeout_seconds=TIMEOUT_SECONDS,
)
passport = Passport(hf, webhooks)
