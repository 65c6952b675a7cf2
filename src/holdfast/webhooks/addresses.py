"""The address guard: where requests may go.

Names tell nothing: they are resolved anew for every request, and there are many ways to write an
address. So the guard looks at the address itself, at the moment in which a socket is made for it.
"""

from __future__ import annotations

import errno
import re
import socket
from collections.abc import Callable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Any, Final
from urllib.parse import urlsplit

from holdfast.webhooks.errors import BadEndpoint
from holdfast.webhooks.limits import URL_CHARS_MAX

# Written out: what Python calls global differs between its versions, and is too much.
_FORBIDDEN_4: Final = tuple(
    IPv4Network(network)
    for network in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # shared by carriers
        "127.0.0.0/8",  # loopback
        "169.254.0.0/16",  # link-local, and the metadata of clouds
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # protocol assignments
        "192.0.2.0/24",  # documentation
        "192.31.196.0/24",  # AS112
        "192.52.193.0/24",  # multicast tunnels
        "192.88.99.0/24",  # 6to4 relays
        "192.168.0.0/16",  # private
        "192.175.48.0/24",  # AS112
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, and broadcast
    )
)
_UNICAST_6: Final = IPv6Network("2000::/3")
_FORBIDDEN_6: Final = tuple(
    IPv6Network(network)
    for network in (
        "2001::/23",  # protocol assignments, Teredo, ORCHID
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4, which wraps any IPv4 address
        "2620:4f:8000::/48",  # AS112
        "3fff::/20",  # documentation
    )
)
_PRIVATE: Final = (
    IPv4Network("10.0.0.0/8"),
    IPv4Network("127.0.0.0/8"),
    IPv4Network("172.16.0.0/12"),
    IPv4Network("192.168.0.0/16"),
    IPv6Network("::1/128"),
    IPv6Network("fc00::/7"),
)
_NOT_IN_URLS: Final = re.compile(r"[\x00-\x20\x7f-\xa0\u2028\u2029\ud800-\udfff\\]")

AddressInfo = tuple[Any, Any, int, str, tuple[Any, ...]]


class AddressForbidden(OSError):
    """The name leads to an address to which nothing is sent. (Its text tells nothing of it.)"""

    def __init__(self) -> None:
        super().__init__(errno.EACCES, "the address is forbidden")


def is_allowed(address: str, *, allow_private: bool = False) -> bool:
    """May a request go there? Only to global unicast addresses."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return False
    if allow_private and any(parsed in network for network in _PRIVATE):
        return True
    return _is_global_4(parsed) if isinstance(parsed, IPv4Address) else _is_global_6(parsed)


def _is_global_4(address: IPv4Address) -> bool:
    return not any(address in network for network in _FORBIDDEN_4)


def _is_global_6(address: IPv6Address) -> bool:
    """What embeds an IPv4 address or stays on its link lies outside of 2000::/3, or is listed."""
    return address in _UNICAST_6 and not any(address in network for network in _FORBIDDEN_6)


def make_socket_factory(*, allow_private: bool) -> Callable[[AddressInfo], socket.socket]:
    """Make sockets for the addresses that are allowed: to them, they are then connected."""

    def make_socket(info: AddressInfo) -> socket.socket:
        family, kind, protocol, _name, place = info
        if not is_allowed(str(place[0]), allow_private=allow_private):
            raise AddressForbidden
        return socket.socket(family=family, type=kind, proto=protocol)

    return make_socket


def check_url(url: str, *, https_only: bool) -> None:
    """Refuse what is no address of an endpoint. Where it leads is seen when it is used."""
    if not isinstance(url, str):
        raise BadEndpoint(f"a URL is a str, not {type(url).__name__}")
    if len(url) > URL_CHARS_MAX or _NOT_IN_URLS.search(url):
        raise BadEndpoint(
            f"a URL has at most {URL_CHARS_MAX} characters, and no spaces, control characters or"
            " backslashes"
        )
    try:
        parts = urlsplit(url)
        has_host = bool(parts.hostname) and parts.port != 0
    except ValueError:
        # Its text repeats what may be a password.
        raise BadEndpoint("this is no URL: its host or its port can't be read") from None
    schemes = ("https",) if https_only else ("https", "http")
    if parts.scheme not in schemes or not has_host:
        raise BadEndpoint(f"a URL is {' or '.join(schemes)} and names a host")
    if "@" in parts.netloc:
        raise BadEndpoint("a URL has no user name and no password")
    if parts.fragment:
        raise BadEndpoint("a URL has no fragment")
