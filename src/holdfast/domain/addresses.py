"""Which hosts are always this machine, whatever DNS says."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from typing import Final

_NAME: Final = "localhost"


@lru_cache
def is_loopback(host: str) -> bool:
    """Whether a host name or an address (without port) is always this machine (RFC 6761)."""
    name = host.lower().removesuffix(".")
    if name == _NAME or name.endswith(f".{_NAME}"):
        return True
    try:
        address = ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback
