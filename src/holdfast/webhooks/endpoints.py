"""Parse the URLs of endpoints, in one way for subscribing and for sending."""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from yarl import URL

from holdfast.webhooks.addresses import is_allowed
from holdfast.webhooks.errors import BadEndpoint
from holdfast.webhooks.limits import HOST_CHARS_MAX, URL_CHARS_MAX

_NOT_IN_URLS: Final = re.compile(r"[\x00-\x20\x7f-\xa0\u2028\u2029\ud800-\udfff\\]")
_LABEL: Final = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)")
# Resolvers read this as a part of an IPv4 address, so no host name ends with one.
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")
_UNREADABLE: Final = "the URL is invalid: its host or port can't be read"


def check_url(url: str, *, https_only: bool, allow_private_addresses: bool) -> None:
    """Reject a URL that can never be used. Names are resolved and checked at each request."""
    host = parse_url(url, https_only=https_only).raw_host or ""
    if _is_address(host) and not is_allowed(host, allow_private=allow_private_addresses):
        raise BadEndpoint("the URL's address is not allowed: it is private or reserved")


def parse_url(url: str, *, https_only: bool) -> URL:
    """Parse a URL as the HTTP client does; reject it if it can't be an endpoint."""
    if not isinstance(url, str):
        raise BadEndpoint(f"the URL must be a str, not {type(url).__name__}")
    if len(url) > URL_CHARS_MAX or _NOT_IN_URLS.search(url):
        raise BadEndpoint(
            f"the URL must have at most {URL_CHARS_MAX} characters and no spaces, control"
            " characters or backslashes"
        )
    try:
        parts = urlsplit(url)
        port = parts.port  # stricter than the client
        parsed = URL(url)
    except (ValueError, IndexError):  # the latter for http://[::]@/
        # The error's text may contain a password.
        raise BadEndpoint(_UNREADABLE) from None
    schemes = ("https",) if https_only else ("https", "http")
    if parts.scheme not in schemes or not parsed.raw_host or port == 0:
        raise BadEndpoint(f"the URL must be {' or '.join(schemes)} and name a host")
    if "@" in parts.netloc:
        raise BadEndpoint("the URL must not contain a user name or password")
    if "#" in url:
        raise BadEndpoint("the URL must not have a fragment")
    if parsed.explicit_port != port or not _is_host(parsed.raw_host):
        raise BadEndpoint(_UNREADABLE)
    return parsed


def _is_host(host: str) -> bool:
    """Is it an IP address in canonical form, or a name that DNS can resolve?"""
    if _is_address(host):
        return "%" not in host
    labels = host.removesuffix(".").split(".")
    return (
        len(host) <= HOST_CHARS_MAX
        and all(_LABEL.fullmatch(label) for label in labels)
        and not _NUMBER.fullmatch(labels[-1])
    )


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
