"""The settings, and the environment variables that set them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from holdfast import Breaker, ConfigurationError, Holdfast, Retry
from holdfast_systems.convert.failures import GW_5XX, GW_TIMEOUT
from holdfast_systems.convert.limits import GATEWAY_TIMEOUT_SECONDS_MAX, KEPT_SECONDS_MAX
from holdfast_systems.environment import Variables, milliseconds, read_variables
from holdfast_systems.urls import has_usable_host

MAPPINGS = ("text", "layout", "invoice")
DAY_SECONDS = 24 * 3600.0
FIRST_DELAY_SECONDS = 10.0
DELAY_JITTER_SECONDS = 5.0
IO_ATTEMPTS_MAX = 2
GATEWAY = Breaker(
    "convert-gateway", failures=5, window_seconds=30, probe_seconds=10, errors=(GW_5XX, GW_TIMEOUT)
)


@dataclass(frozen=True, kw_only=True)
class ConvertSettings:
    """`docs/systems/convert.md` explains each. The engine's `database_url` is the default."""

    gateway_url: str = field(repr=False)
    uploads_dir: Path = Path("/app/uploads")
    results_dir: Path = Path("/app/results")
    database_url: str | None = field(default=None, repr=False)
    concurrency: int = 4
    lease_seconds: float | None = None
    gateway_timeout_seconds: float = 180.0
    max_attempts: int = 3
    uploads_kept_seconds: float = 7 * DAY_SECONDS
    results_kept_seconds: float = 30 * DAY_SECONDS
    mappings: tuple[str, ...] = MAPPINGS

    def __post_init__(self) -> None:
        if not _is_url(self.gateway_url):
            raise ConfigurationError("GATEWAY_URL must look like http://gateway:8080")
        if not 0 < self.gateway_timeout_seconds <= GATEWAY_TIMEOUT_SECONDS_MAX:
            text = f"GATEWAY_TIMEOUT_MS must be 1 to {GATEWAY_TIMEOUT_SECONDS_MAX * 1000}"
            raise ConfigurationError(text)
        if not 0 < self.uploads_kept_seconds <= self.results_kept_seconds <= KEPT_SECONDS_MAX:
            raise ConfigurationError(
                "UPLOADS_KEPT_SEC must be more than 0, and RESULTS_KEPT_SEC must be at least as"
                f" much and at most {KEPT_SECONDS_MAX}"
            )

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> ConvertSettings:
        """Read the variables that are set, and use defaults for the others."""
        found = os.environ if environment is None else environment
        if not found.get("GATEWAY_URL"):
            raise ConfigurationError("GATEWAY_URL is not set; set it to the URL of the gateway")
        return cls(**read_variables(found, _VARIABLES))

    @property
    def retry(self) -> Retry:
        """10-15 s after the first failed attempt, 20-25 s after the second; once for IO_ERROR."""
        policy = Retry.exponential(
            max_attempts=self.max_attempts,
            base=FIRST_DELAY_SECONDS,
            factor=2,
            jitter=0,
            jitter_seconds=DELAY_JITTER_SECONDS,
        )
        return policy.limit("IO_ERROR", min(IO_ATTEMPTS_MAX, self.max_attempts))

    def make_holdfast(self) -> Holdfast:
        settings: dict[str, Any] = {"concurrency": self.concurrency}
        if self.lease_seconds is not None:
            settings["lease_seconds"] = self.lease_seconds
        return Holdfast(self.database_url, **settings)


def _is_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        # Reading the port checks it.
        is_whole = has_usable_host(url) and parts.port != 0
    except ValueError:
        return False
    return is_whole and parts.scheme in ("http", "https") and not parts.query + parts.fragment


_VARIABLES: Variables = {
    "DATABASE_URL": ("database_url", str),
    "GATEWAY_URL": ("gateway_url", str),
    "WORKER_CONCURRENCY": ("concurrency", int),
    "WORKER_LEASE_TTL_SEC": ("lease_seconds", float),
    "GATEWAY_TIMEOUT_MS": ("gateway_timeout_seconds", milliseconds),
    "RETRY_MAX_ATTEMPTS": ("max_attempts", int),
    "UPLOADS_DIR": ("uploads_dir", Path),
    "RESULTS_DIR": ("results_dir", Path),
    "UPLOADS_KEPT_SEC": ("uploads_kept_seconds", float),
    "RESULTS_KEPT_SEC": ("results_kept_seconds", float),
}
