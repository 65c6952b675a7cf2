"""No request ever goes to a forbidden address."""

from __future__ import annotations

import socket
from ipaddress import IPv4Address, IPv6Address

import pytest
from aiohttp.abc import AbstractResolver, ResolveResult
from hypothesis import given
from hypothesis import strategies as st

from holdfast.webhooks.addresses import is_allowed
from holdfast.webhooks.presets import Request
from holdfast.webhooks.sender import NOT_CONNECTED, Report, open_client, send
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
    assert report.error_code == "BAD_URL" or (report.cause or "").startswith("ADDRESS_FORBIDDEN")
    assert report.response_status is None
    assert receiver.requests == []


class Answering(AbstractResolver):
    """Answers these addresses, one list after the other, the last one for ever."""

    def __init__(self, *answers: list[str]) -> None:
        self._answers = list(answers)

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        addresses = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET,
                proto=0,
                flags=socket.AI_NUMERICHOST,
            )
            for address in addresses
        ]

    async def close(self) -> None:
        pass


async def send_by_name(port: int, resolver: AbstractResolver) -> Report:
    """Loopback is allowed here; 0.0.0.0 never is, though it leads to this machine, too."""
    policy = make_policy()
    async with open_client(policy, resolver) as client:
        return await send(client, policy, f"http://example.org:{port}/", Request({}, b"{}"))


async def test_a_name_that_flips_to_a_forbidden_address_is_refused(receiver: Receiver) -> None:
    resolver = Answering(["127.0.0.1"], ["0.0.0.0"], ["127.0.0.1"], ["169.254.169.254"])
    told = [await send_by_name(receiver.port, resolver) for _ in range(4)]
    assert [each.response_status for each in told] == [200, None, 200, None]
    assert [(each.cause or "").partition(":")[0] for each in told] == [
        "", "ADDRESS_FORBIDDEN", "", "ADDRESS_FORBIDDEN",
    ]  # fmt: skip
    assert len(receiver.requests) == 2


@pytest.mark.parametrize(
    "addresses",
    [["127.0.0.1", "0.0.0.0"], ["0.0.0.0", "127.0.0.1"], ["127.0.0.1", "127.0.0.1", "::"]],
)
async def test_one_forbidden_address_among_others_forbids_the_name(
    receiver: Receiver, addresses: list[str]
) -> None:
    report = await send_by_name(receiver.port, Answering(addresses))
    assert (report.error_code, report.response_status) == ("NETWORK_ERROR", None)
    assert (report.cause or "").startswith("ADDRESS_FORBIDDEN")
    assert receiver.requests == []


async def test_a_tenant_can_not_tell_a_forbidden_address_from_one_where_nobody_answers(
    receiver: Receiver,
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    told = {
        "forbidden": await send_by_name(receiver.port, Answering(["0.0.0.0"])),
        "nobody": await send_by_name(port, Answering(["127.0.0.1"])),
        "unknown": await send_by_name(port, Unknown()),
    }
    for each in told.values():
        assert (each.error_code, each.error_text) == ("NETWORK_ERROR", NOT_CONNECTED)
    causes = {name: (each.cause or "").partition(":")[0] for name, each in told.items()}
    assert causes == {
        "forbidden": "ADDRESS_FORBIDDEN",
        "nobody": "CONNECT_FAILED",
        "unknown": "NAME_UNKNOWN",
    }


class Unknown(Answering):
    def __init__(self) -> None:
        super().__init__([])

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        raise OSError(None, "no such name")
