"""The pipeline as one application, set up by its environment: `holdfast worker
holdfast_systems.passport.app:hf`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from holdfast import Holdfast
from holdfast.webhooks import Webhooks
from holdfast_systems.environment import is_set, number
from holdfast_systems.passport.preset import BPC
from holdfast_systems.passport.system import Passport

LEASE_SECONDS = 60.0
POLL_INTERVAL_MS = 1000.0


def settings_from(environment: Mapping[str, str]) -> dict[str, Any]:
    """The engine's settings by the names that this system has for them."""
    lease_seconds = number(environment, "BPC_JOBS_LEASE_SECONDS", LEASE_SECONDS)
    return {
        "lease_seconds": lease_seconds,
        "renew_seconds": number(environment, "BPC_JOBS_LEASE_RENEW_SECONDS", lease_seconds / 2),
        "poll_seconds": number(environment, "BPC_JOBS_POLL_INTERVAL_MS", POLL_INTERVAL_MS) / 1000,
    }


hf = Holdfast(**settings_from(os.environ))
# For development: without it only https:// and public addresses are delivered to.
_is_local = is_set(os.environ, "BPC_WEBHOOKS_LOCAL")
webhooks = Webhooks(hf, presets=[BPC], https_only=not _is_local, allow_private_addresses=_is_local)
passport = Passport(hf, webhooks)
