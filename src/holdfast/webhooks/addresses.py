"""The address guard: where requests may go.

Names tell nothing: they are resolved anew for every request, and there are many ways to write an
address. So the guard looks at the address itself, at the moment in which a socket is made for it.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Any, Final

# Written out: what Python calls global differs between its versions, and is too much.
_FORBIDDEN_4: Final = tuple(
    IPv4Network(network)
    for network in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # shared by carriers
        "127.0.0.0/8",  # loopback
        "161.26.0.0/16",  # IBM Cloud, to its own machines
        "166.8.0.0/14",  # IBM Cloud, to its own machines
        "168.63.129.16/32",  # Azure, to its own machines: settings and certificates
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
# Private addresses that are never right, not in development either: metadata with credentials.
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
    """The name leads to an address to which nothing is sent. (Its text tells nothing of it.)"""

    def __init__(self) -> None:
        super().__init__(errno.EACCES, "the address is forbidden")


def is_allowed(address: str, *, allow_private: bool = False) -> bool:
    """May a request go there? Only to global unicast addresses."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return False
    if parsed in _METADATA_6:
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
