"""The address guard: which addresses requests may connect to.

A name may resolve differently for each request, and an address can be written in many ways. So the
guard checks the address itself, at the moment a socket is made for it.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Any, Final

# Listed here because Python's `is_global` differs between versions, and allows too much.
_FORBIDDEN_4: Final = tuple(
    IPv4Network(network)
    for network in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # shared by carriers
        "127.0.0.0/8",  # loopback
        "161.26.0.0/16",  # IBM Cloud, internal services
        "166.8.0.0/14",  # IBM Cloud, internal services
        "168.63.129.16/32",  # Azure, internal: settings and certificates
        "169.254.0.0/16",  # link-local, and cloud metadata
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
# Never allowed, not even in development: cloud metadata, which includes credentials.
_METADATA_6: Final = frozenset(
    {
        IPv6Address("fd00:ec2::254"),  # Amazon
        IPv6Address("fd20:ce::254"),  # Google
        IPv6Address("fd00:42::42"),  # Scaleway
    }
)
_PRIVATE: Final = (
    IPv4Network("10.0.0.0/8"),
    IPv4Network("127.0.0.0/8"),
    IPv4Network("172.16.0.0/12"),
    IPv4Network("192.168.0.0/16"),
    IPv6Network("::1/128"),
    IPv6Network("fc00::/7"),
)

AddressInfo = tuple[Any, Any, int, str, tuple[Any, ...]]


class AddressForbidden(OSError):
    """The name resolves to a forbidden address, which the text does not reveal."""

    def __init__(self) -> None:
        super().__init__(errno.EACCES, "the address is not allowed")


def is_allowed(address: str, *, allow_private: bool = False) -> bool:
    """Return whether requests may connect to this address: only to global unicast."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return False
    if parsed in _METADATA_6:
        return False
    if allow_private and any(parsed in network for network in _PRIVATE):
        return True
    if isinstance(parsed, IPv4Address):
        return not any(parsed in network for network in _FORBIDDEN_4)
    # Addresses that embed IPv4 or are link-local are outside 2000::/3, or listed.
    return parsed in _UNICAST_6 and not any(parsed in network for network in _FORBIDDEN_6)


def make_socket_factory(*, allow_private: bool) -> Callable[[AddressInfo], socket.socket]:
    """Return a function that makes sockets for allowed addresses, and fails for others."""

    def make_socket(info: AddressInfo) -> socket.socket:
        family, kind, protocol, _name, place = info
        if not is_allowed(str(place[0]), allow_private=allow_private):
            raise AddressForbidden
        return socket.socket(family=family, type=kind, proto=protocol)

    return make_socket
