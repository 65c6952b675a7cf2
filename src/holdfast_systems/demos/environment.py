"""Settings for the user's own systems must not reach a demonstration."""

from __future__ import annotations

from collections.abc import MutableMapping

_PREFIXES = ("BPC_", "FAULT_", "GATEWAY_", "HOLDFAST_", "SALESFORCE_", "WORKER_")
_NAMES = {
    "APP_SERVER_URL",
    "DATABASE_URL",
    "FAIL_ONCE",
    "JOB_TIMEOUT_SEC",
    "RESULTS_DIR",
    "RETRY_MAX_ATTEMPTS",
    "UPLOADS_DIR",
}


def forget_settings(environment: MutableMapping[str, str]) -> None:
    """Take out every setting of the engine and of the systems: a demonstration brings its own,
    and must never touch the database that one of them names."""
    for name in [*environment]:
        if name in _NAMES or name.startswith(_PREFIXES):
            del environment[name]
