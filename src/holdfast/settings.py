"""Settings: keyword arguments of `Holdfast(...)`, or environment variables of the same name."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from holdfast.domain import limits
from holdfast.domain.codec import Results
from holdfast.domain.errors import ConfigurationError
from holdfast.domain.retention import DAY_SECONDS, Retention, parse_rules
from holdfast.domain.spelling import did_you_mean
from holdfast.domain.texts import check_name

DEFAULT_URL = "sqlite:///holdfast.db"
MAY_BE_ZERO = (
    "renew_seconds",
    "grace_seconds",
    "metrics_port",
    "log_errors",
    "messengers_required",
    "read_only",
)
CHOICES = {"unstorable_results": ("fail", "replace"), "sqlite_synchronous": ("FULL", "NORMAL")}
PORT_MAX = 65535
# Variables that are not settings: the command line and the HTTP API read them.
OF_COMMANDS = (
    "app",
    "database_url",
    "key_pepper",
    "log_format",
    "log_level",
    "processes",
    "queues",
    "secret_keys",
)
TRUE_OR_FALSE = {
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    **dict.fromkeys(("", "0", "false", "no", "off"), False),
}
CLOSE = 0.88  # how similar two names must be, from 0 to 1


@dataclass(frozen=True, slots=True)
class Settings:
    """`docs/reference/settings.md` explains each setting."""

    lease_seconds: float = 30.0
    renew_seconds: float = 0.0  # 0: a third of the lease
    poll_seconds: float = 1.0
    reclaim_seconds: float = 4.0
    grace_seconds: float = 30.0
    timeout_grace_seconds: float = 5.0
    concurrency: int = 20
    max_attempts: int = 5
    keys_kept_seconds: float = 7 * DAY_SECONDS
    history_kept_seconds: float = 7 * DAY_SECONDS
    history_kept_rules: str = ""  # for example '*:dead=90d, images:succeeded=12h'
    child_jobs_max: int = 1000
    child_bytes_max: int = 512 * 1024 * 1024
    alone_processes: int = 4
    payload_bytes_max: int = limits.PAYLOAD_BYTES_MAX
    result_bytes_max: int = limits.RESULT_BYTES_MAX
    unstorable_results: str = "fail"
    pool_size: int = 4
    sqlite_synchronous: str = "FULL"
    metrics_port: int = 0  # 0: no metrics are served
    metrics_host: str = "127.0.0.1"
    app_version: str = ""  # of the application, shown for each of its workers
    log_errors: bool = False
    messengers: str = field(default="", repr=False)  # URLs, which may contain passwords
    messengers_required: bool = False  # for readiness
    read_only: bool = False  # the database refuses every change, and is never migrated

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, str):
                continue
            least = 0.0 if each.name in MAY_BE_ZERO else 1e-3
            if not least <= value or math.isinf(value):
                bound = "more than 0" if least else "0 or more"
                raise ConfigurationError(f"{each.name} must be {bound}, not {value}")
            if each.name.endswith("_seconds") and value > limits.DELAY_SECONDS_MAX:
                raise ConfigurationError(f"{each.name} must be at most ten years, not {value}")
        for name in ("payload_bytes_max", "result_bytes_max"):
            if getattr(self, name) > limits.STORED_BYTES_MAX:
                raise ConfigurationError(
                    f"{name} must be at most {limits.STORED_BYTES_MAX}, not {getattr(self, name)}:"
                    " store larger data elsewhere and pass a reference to it"
                )
        parse_rules(self.history_kept_rules)
        if self.app_version:
            check_name("app_version", self.app_version)
        if self.metrics_port > PORT_MAX:
            raise ConfigurationError(
                f"metrics_port must be at most {PORT_MAX}, not {self.metrics_port}"
            )
        for name, choices in CHOICES.items():
            if (value := getattr(self, name)) not in choices:
                raise ConfigurationError(f"{name} must be {' or '.join(choices)}, not {value!r}")
        if self.renewal_seconds > self.lease_seconds / 2:
            raise ConfigurationError(
                f"renew_seconds ({self.renewal_seconds:g}) must be at most half of lease_seconds"
                f" ({self.lease_seconds:g}), so that one late renewal does not lose a lease"
            )

    @property
    def renewal_seconds(self) -> float:
        return self.renew_seconds or self.lease_seconds / 3

    @property
    def results(self) -> Results:
        return Results(self.result_bytes_max, replaces=self.unstorable_results == "replace")

    @property
    def retention(self) -> Retention:
        rules = parse_rules(self.history_kept_rules)
        return Retention(self.history_kept_seconds, rules, self.keys_kept_seconds)


def read_settings(
    given: Mapping[str, Any], environment: Mapping[str, str] | None = None
) -> Settings:
    """Read settings from the arguments, then the environment, then the defaults."""
    environment = os.environ if environment is None else environment
    known = {each.name: type(each.default) for each in fields(Settings)}
    for name in given:
        if name not in known:
            hint = did_you_mean(name, known) or f"; the settings are: {', '.join(known)}"
            raise ConfigurationError(f"there is no setting {name!r}{hint}")
    _warn_of_unknown(environment, known)
    values: dict[str, Any] = {}
    for name, kind in known.items():
        variable = f"HOLDFAST_{name.upper()}"
        if name in given:
            values[name] = _convert(name, kind, given[name])
        elif variable in environment:
            values[name] = _convert(variable, kind, environment[variable])
    return replace(Settings(), **values)


def _warn_of_unknown(environment: Mapping[str, str], known: Mapping[str, object]) -> None:
    """Warn about a variable that looks like a misspelled setting. Others with the prefix may be
    somebody else's: Kubernetes sets some for a service of this name."""
    variables = [f"HOLDFAST_{name.upper()}" for name in (*known, *OF_COMMANDS)]
    ours = {name for name in environment if name.startswith("HOLDFAST_")}
    for variable in sorted(ours.difference(variables)):
        if hint := did_you_mean(variable, variables, CLOSE):
            warnings.warn(f"{variable} is not a setting and is ignored{hint}", stacklevel=4)


def _convert(name: str, kind: type, value: Any) -> Any:
    try:
        converted = TRUE_OR_FALSE[str(value).lower()] if kind is bool else kind(value)
        if isinstance(value, float) and converted != value and not math.isnan(value):
            raise ValueError
        return converted
    except (KeyError, TypeError, ValueError, OverflowError):
        raise ConfigurationError(f"{name} must be a {kind.__name__}, not {value!r}") from None
