"""The pipeline as one application, set up by its environment: `holdfast worker
holdfast_systems.passport.app:hf`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from holdfast import ConfigurationError, Holdfast
from holdfast.webhooks import Webhooks
from holdfast_systems.passport.system import Passport

LEASE_SECONDS = 60.0
POLL_INTERVAL_MS = 1000.0


def settings_from(environment: Mapping[str, str]) -> dict[str, Any]:
    """The engine's settings by the names that this system has for them."""
    lease_seconds = _number(environment, "BPC_JOBS_LEASE_SECONDS", LEASE_SECONDS)
    return {
        "lease_seconds": lease_seconds,
        "renew_seconds": _number(environment, "BPC_JOBS_LEASE_RENEW_SECONDS", lease_seconds / 2),
        "poll_seconds": _number(environment, "BPC_JOBS_POLL_INTERVAL_MS", POLL_INTERVAL_MS) / 1000,
    }


def _number(environment: Mapping[str, str], name: str, default: float) -> float:
    text = environment.get(name, "")
    try:
        return float(text) if text else default
    except ValueError:
        raise ConfigurationError(f"{name} must be a number, not {text!r}") from None


def _is_set(environment: Mapping[str, str], name: str) -> bool:
    return environment.get(name, "").lower() in ("1", "true", "yes")


hf = Holdfast(**settings_from(os.environ))
# For development: without it only https:// and public addresses are delivered to.
_is_local = _is_set(os.environ, "BPC_WEBHOOKS_LOCAL")
webhooks = Webhooks(hf, https_only=not _is_local, allow_private_addresses=_is_local)
passport = Passport(hf, webhooks)
