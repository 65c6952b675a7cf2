"""The settings, under the names that the environment has for them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote

from holdfast import ConfigurationError, Retry
from holdfast_systems.compute.contract import check_names
from holdfast_systems.compute.limits import ATTEMPTS_MAX, TIMEOUT_SECONDS_MAX, URL_CHARS_MAX
from holdfast_systems.environment import number

DEFAULT_APP_SERVER = "http://127.0.0.1:8080/gh/{def}:{ver}/solve"
DEFAULT_RETRY = Retry.exponential(max_attempts=ATTEMPTS_MAX, base=2.0, cap=60.0)
_PLACEHOLDERS = ("{def}", "{ver}")
_ADDRESS = re.compile(r"https?://[^/?#@{}]+/[^?#@]*")
_UNFIT = re.compile(r"[{}\s\x00-\x1f\x7f]")


@dataclass(frozen=True)
class ComputeSettings:
    """`app_server_url` is a template with {def} and {ver}; `retry` is for what may pass by itself.

    Without `database_url` the database is the one that `HOLDFAST_DATABASE_URL` names.
    """

    database_url: str | None = field(default=None, repr=False)  # it may hold a password
    app_server_url: str = DEFAULT_APP_SERVER
    timeout_seconds: float = 240.0
    retry: Retry = DEFAULT_RETRY

    def __post_init__(self) -> None:
        _check_template(self.app_server_url)
        if not 0 < self.timeout_seconds <= TIMEOUT_SECONDS_MAX:
            raise ConfigurationError(
                f"JOB_TIMEOUT_SEC must be more than 0 and at most {TIMEOUT_SECONDS_MAX:g},"
                f" not {self.timeout_seconds:g}"
            )

    def solve_url(self, definition: str, version: str) -> str:
        check_names(definition, version)
        url = self.app_server_url
        for placeholder, value in zip(_PLACEHOLDERS, (definition, version), strict=True):
            url = url.replace(placeholder, quote(value, safe=""))
        return url


def read_settings(environment: Mapping[str, str]) -> ComputeSettings:
    return ComputeSettings(
        database_url=environment.get("DATABASE_URL") or None,
        app_server_url=environment.get("APP_SERVER_URL") or DEFAULT_APP_SERVER,
        timeout_seconds=number(environment, "JOB_TIMEOUT_SEC", 240.0),
    )


def _check_template(template: str) -> None:
    """Refuse what is no address; its text is not repeated, for it may hold a password."""
    address = template
    for placeholder in _PLACEHOLDERS:
        if template.count(placeholder) != 1:
            raise ConfigurationError(f"APP_SERVER_URL must contain {placeholder} once")
        address = address.replace(placeholder, "")
    if len(template) > URL_CHARS_MAX or _UNFIT.search(address):
        raise ConfigurationError(
            f"APP_SERVER_URL must be an address of at most {URL_CHARS_MAX} characters, without"
            " other braces or spaces"
        )
    if _ADDRESS.fullmatch(template) is None:
        raise ConfigurationError(
            "APP_SERVER_URL must begin with http:// or https:// and a host, without a user name"
            " or password, with {def} and {ver} in its path"
        )
