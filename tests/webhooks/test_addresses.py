"""No request ever goes to a forbidden address."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.webhooks.addresses import is_allowed
from holdfast.webhooks.presets import Request
from holdfast.webhooks.sender import open_client, send
from tests.webhooks.receiving import Receiver
from tests.webhooks.shop import make_policy

pytestmark = pytest.mark.heavy

FORBIDDEN = [
    "0.0.0.0",
    "10.1.2.3",
    "100.64.0.1",
    "100.100.100.200",
    "127.0.0.1",
    "127.255.255.255",
    "161.26.0.10",
    "166.9.1.1",
    "168.63.129.16",
    "169.254.169.254",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.1",
    "192.0.0.192",
    "192.0.2.1",
    "192.88.99.1",
    "192.168.1.1",
    "198.18.0.1",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "239.255.255.255",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::127.0.0.1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "::ffff:8.8.8.8",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::1",
    "100::1",
    "2001::1",
    "2001:db8::1",
    "2002:7f00:1::",
    "3fff::1",
    "5f00::1",
    "fc00::1",
    "fd00:ec2::254",
    "fe80::1",
    "fe80::1%eth0",
    "fec0::1",
    "ff02::1",
    "not an address",
    "",
]
ALLOWED = ["1.1.1.1", "8.8.8.8", "93.184.216.34", "2606:4700:4700::1111", "2a00:1450:4001::1"]
# What a resolver takes for 127.0.0.1.
DISGUISES = [
    "127.0.0.1",
    "2130706433",
    "0x7f000001",
    "0177.0.0.1",
    "127.1",
    "\uff11\uff12\uff17.0.0.1",
    "localhost",
    "LOCALHOST",
    "0.0.0.0",
    "[::1]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
]


@pytest.mark.parametrize("address", FORBIDDEN)
def test_an_address_that_is_not_global_unicast_is_forbidden(address: str) -> None:
    assert not is_allowed(address)


@pytest.mark.parametrize("address", ALLOWED)
def test_the_internet_is_allowed(address: str) -> None:
    assert is_allowed(address)


@given(address=st.ip_addresses())
def test_what_python_does_not_call_global_is_forbidden_too(
    address: IPv4Address | IPv6Address,
) -> None:
    if not address.is_global or address.is_multicast:
        assert not is_allowed(str(address))


@given(address=st.ip_addresses(v=4))
def test_an_embedded_address_is_no_way_around(address: IPv4Address) -> None:
    number = int(address)
    wrapped = [
        IPv6Address(number),
        IPv6Address((0xFFFF << 32) | number),
        IPv6Address((0x64FF9B << 96) | number),
        IPv6Address((0x2002 << 112) | (number << 80)),
    ]
    assert not any(is_allowed(str(each)) for each in wrapped)


@pytest.mark.parametrize("address", ["127.0.0.1", "10.0.0.1", "192.168.1.1", "::1", "fd00::1"])
def test_development_may_allow_private_addresses(address: str) -> None:
    assert is_allowed(address, allow_private=True)


@pytest.mark.parametrize(
    "address",
    [
        "169.254.169.254",
        "168.63.129.16",
        "0.0.0.0",
        "224.0.0.1",
        "fe80::1",
        "fd00:ec2::254",
        "fd20:ce::254",
        "fd00:42::42",
    ],
)
def test_development_does_not_allow_the_rest(address: str) -> None:
    assert not is_allowed(address, allow_private=True)


@pytest.mark.parametrize("host", DISGUISES)
async def test_nothing_connects_to_this_machine_however_it_is_written(
    receiver: Receiver, host: str
) -> None:
    """The receiver listens, and would answer."""
    policy = make_policy(allow_private_addresses=False)
    async with open_client(policy) as client:
        report = await send(client, policy, f"http://{host}:{receiver.port}/", Request({}, b"{}"))
    assert report.error_code in ("ADDRESS_FORBIDDEN", "BAD_URL")
    assert report.response_status is None
    assert receiver.requests == []


async def test_the_code_says_that_the_address_is_forbidden(receiver: Receiver) -> None:
    policy = make_policy(allow_private_addresses=False)
    async with open_client(policy) as client:
        report = await send(client, policy, receiver.url, Request({}, b"{}"))
    assert report.error_code == "ADDRESS_FORBIDDEN"
