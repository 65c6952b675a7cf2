"""The settings, and the environment variables that set them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from holdfast import ConfigurationError, Retry
from holdfast_systems.compute.contract import check_names
from holdfast_systems.compute.limits import (
    DELIVERIES_MAX,
    RETENTION_DAYS_MAX,
    TIMEOUT_SECONDS_MAX,
    URL_CHARS_MAX,
)
from holdfast_systems.environment import Variables, read_variables, refuse_without
from holdfast_systems.urls import has_usable_host

DEFAULT_APP_SERVER = "http://127.0.0.1:8080/gh/{def}:{ver}/solve"
DEFAULT_DELIVERIES = 5
_VARIABLES: Variables = {
    "DATABASE_URL": ("database_url", str),
    "APP_SERVER_URL": ("app_server_url", str),
    "JOB_TIMEOUT_SEC": ("timeout_seconds", float),
    "CONTRACTS_DIR": ("contracts_dir", Path),
    "COMPUTE_RETENTION_DAYS": ("retention_days", float),
    "MAX_DELIVERY_COUNT": ("deliveries_max", int),
    "SERVICEBUS_CONN": ("servicebus_conn", str),
    "SERVICEBUS_QUEUE": ("servicebus_queue", str),
    "LOCK_RENEW_SEC": ("lock_renew_seconds", float),
}
_ADDRESS = re.compile(r"https?://[^/?#@{}]+/[^?#@]*")
_UNFIT = re.compile(r"[{}\s\x00-\x1f\x7f]")


@dataclass(frozen=True)
class ComputeSettings:
    """`app_server_url` is a template with {def} and {ver}. Transient errors are retried until there
    have been `deliveries_max` attempts, unless `retry` says otherwise. `contracts_dir` is a folder
    of your own contracts. With `retention_days` 0, requests and results are kept forever.

    With `servicebus_conn`, messages about jobs go through a queue of Azure Service Bus, and the
    locks of messages are renewed every `lock_renew_seconds`, which is 45 by default.

    Without `database_url`, the engine's own setting applies (`HOLDFAST_DATABASE_URL`).
    """

    database_url: str | None = field(default=None, repr=False)  # it may contain a password
    app_server_url: str = DEFAULT_APP_SERVER
    timeout_seconds: float = 240.0
    deliveries_max: int = DEFAULT_DELIVERIES
    retry: Retry | None = None
    contracts_dir: Path | None = None
    retention_days: float = 365.0
    servicebus_conn: str | None = field(default=None, repr=False)  # it contains a key
    servicebus_queue: str | None = None
    lock_renew_seconds: float | None = None

    def __post_init__(self) -> None:
        _check_template(self.app_server_url)
        if not 1 <= self.deliveries_max <= DELIVERIES_MAX:
            raise ConfigurationError(
                f"MAX_DELIVERY_COUNT must be from 1 to {DELIVERIES_MAX}, not {self.deliveries_max}"
            )
        if not 0 <= self.retention_days <= RETENTION_DAYS_MAX:
            raise ConfigurationError(
                f"COMPUTE_RETENTION_DAYS must be from 0 to {RETENTION_DAYS_MAX:,},"
                f" not {self.retention_days:g}"
            )
        if not 0 < self.timeout_seconds <= TIMEOUT_SECONDS_MAX:
            raise ConfigurationError(
                f"JOB_TIMEOUT_SEC must be more than 0 and at most {TIMEOUT_SECONDS_MAX:g},"
                f" not {self.timeout_seconds:g}"
            )

    @property
    def retries(self) -> Retry:
        return self.retry or Retry.exponential(max_attempts=self.deliveries_max, base=2.0, cap=60.0)

    def solve_url(self, definition: str, version: str) -> str:
        check_names(definition, version)
        url = self.app_server_url.replace("{def}", quote(definition, safe=""))
        return url.replace("{ver}", quote(version, safe=""))


def read_settings(environment: Mapping[str, str]) -> ComputeSettings:
    refuse_without(environment, "SERVICEBUS_CONN", "SERVICEBUS_QUEUE", "LOCK_RENEW_SEC")
    return ComputeSettings(**read_variables(environment, _VARIABLES))


def _check_template(template: str) -> None:
    """Reject an invalid URL without repeating it: it may contain a password."""
    rest = template.replace("{def}", "", 1).replace("{ver}", "", 1)
    if (
        len(template) > URL_CHARS_MAX
        or "{def}" not in template
        or "{ver}" not in template
        or _UNFIT.search(rest)
        or not _ADDRESS.fullmatch(template)
        or not has_usable_host(template)
    ):
        raise ConfigurationError(
            "APP_SERVER_URL must be an http or https URL with {def} and {ver} once each in its"
            f" path, at most {URL_CHARS_MAX} characters, no spaces or other braces, and no user"
            " name, password, query or fragment"
        )
