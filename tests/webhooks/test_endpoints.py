"""A URL to which nothing can ever be sent is refused when somebody subscribes."""

from __future__ import annotations

import asyncio
import socket
from typing import Any, Final

import aiohttp
import pytest
from aiohttp.abc import AbstractResolver, ResolveResult
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.webhooks import BadEndpoint
from holdfast.webhooks.addresses import AddressInfo, make_socket_factory
from holdfast.webhooks.endpoints import check_url
from holdfast.webhooks.presets import Request
from holdfast.webhooks.sender import Report, send
from tests.webhooks.shop import make_policy

pytestmark = pytest.mark.heavy

LONG_LABEL: Final = "a" * 64
ODD: Final = [
    f"https://{host}/"
    for host in (
        "[::]@",
        "127.0.0.1",
        "10.0.0.1",
        "168.63.129.16",
        "169.254.169.254",
        "[::1]",
        "[fd00:ec2::254]",
        "[::ffff:127.0.0.1]",
        "[2606:4700::1%25eth0]",
        "[v1.a:b]",
        "[]",
        "127.1",
        "2130706433",
        "134744072",
        "0x7f000001",
        "0177.0.0.1",
        "8.8.8.8.",
        "8.8.8.08",
        "1.2.3.4.5",
        "256.1.1.1",
        "example.0x1",
        "example.1",
        "\uff11\uff12\uff17.0.0.1",
        "a..b",
        ".example.org",
        "example.org..",
        ".",
        f"{LONG_LABEL}.org",
        ".".join(["a" * 60] * 5),
        "\u00e9" * 60 + ".org",
        "-example.org",
        "example-.org",
        "exa%6dple.org",
        "exa%00mple.org",
        "exa*mple.org",
        "exa!mple.org",
        "exa,mple.org",
        "exa|mple.org",
        "exa<mple.org",
        "exa^mple.org",
        "example.org:+80",
        "example.org:8_0",
        "example.org:\u0668\u0660",
        "example.org:-1",
        "example.org:65536",
        "example\u200b.org",
        "example\u3002.\u3002org",
    )
]
USUAL: Final = [
    "https://example.org",
    "https://example.org:8443/a/b?c=d",
    "https://example.org:/a",
    "https://EXAMPLE.org./",
    "https://a_b.example.org/%zz?x=%",
    "https://b\u00fccher.example/\u00fc",
    "https://xn--bcher-kva.example/",
    "https://1.example.org/",
    "https://8.8.8.8/",
    "https://[2606:4700:4700::1111]:8443/",
    f"https://{LONG_LABEL[1:]}.org/",
]


@pytest.mark.parametrize(
    "url",
    [
        "",
        "example.org",
        "ftp://example.org/",
        "file:///etc/passwd",
        "http://example.org/",
        "https://",
        "https:///path",
        "https://user@example.org/",
        "https://user:secret@example.org/",
        "https://@example.org/",
        "https://user:secret/word@example.org/",
        "https://user:secret\uff20example.org/",
        "https://example.org:secret/",
        "https://exa\ud800mple.org/",
        "https://example.org/\ud800",
        "https://example.org/\u2028",
        b"https://example.org/",
        None,
        "https://example.org:0/",
        "https://example.org:99999/",
        "https://[::1/",
        "https://example.org/a b",
        "https://example.org\\@other.org/",
        "https://example.org/#part",
        "https://example.org/\n",
        "https://example.org/" + "a" * 2000,
        *ODD,
    ],
)
def test_a_url_that_is_no_endpoint_is_refused_without_its_secrets(url: Any) -> None:
    with pytest.raises(BadEndpoint) as refused:
        check_url(url, https_only=True, allow_private_addresses=False)
    assert "secret" not in f"{refused.value} {refused.value.__cause__}"


@pytest.mark.parametrize("url", USUAL)
def test_an_endpoint_has_an_ordinary_url(url: str) -> None:
    check_url(url, https_only=True, allow_private_addresses=False)


def test_plain_http_is_for_development() -> None:
    check_url("http://example.org/", https_only=False, allow_private_addresses=False)


class _Everywhere(AbstractResolver):
    """Knows every name that can be encoded."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        host.encode("idna")  # as the system's resolver does
        return [
            ResolveResult(
                hostname=host,
                host="127.0.0.1",
                port=port,
                family=socket.AF_INET,
                proto=0,
                flags=socket.AI_NUMERICHOST,
            )
        ]

    async def close(self) -> None:
        pass


def _go_nowhere(info: AddressInfo) -> socket.socket:
    make_socket_factory(allow_private=True)(info).close()
    raise ConnectionRefusedError


async def _send(url: str) -> Report:
    connector = aiohttp.TCPConnector(
        resolver=_Everywhere(), socket_factory=_go_nowhere, use_dns_cache=False
    )
    async with aiohttp.ClientSession(connector=connector) as client:
        return await send(client, make_policy(), url, Request({}, b"{}"))


def _agree(url: str) -> None:
    """Whoever subscribes is refused exactly what the sender refuses."""
    try:
        check_url(url, https_only=False, allow_private_addresses=True)
    except BadEndpoint:
        expected = {"BAD_URL", "ADDRESS_FORBIDDEN"}
    else:
        expected = {"CONNECT_FAILED"}
    report = asyncio.run(_send(url))
    assert (report.cause or report.error_code or "").partition(":")[0] in expected, url


hosts = st.one_of(
    st.sampled_from([url.removeprefix("https://").rstrip("/") for url in (*ODD, *USUAL)]),
    st.text(max_size=12),
    st.text("a0.-_x:%[]@", max_size=12),
    st.ip_addresses(v=4).map(str),
    st.ip_addresses(v=6).map(lambda address: f"[{address}]"),
    st.lists(st.text("abx019-", min_size=1, max_size=66), max_size=5).map(".".join),
)


@settings(max_examples=300, deadline=None)
@given(
    scheme=st.sampled_from(["http://", "https://", "HTTP://", "ftp://", "//", "http:", ""]),
    host=hosts,
    rest=st.one_of(
        st.just("/"), st.integers(-1, 70_000).map(lambda port: f":{port}/"), st.text(max_size=8)
    ),
)
def test_who_subscribes_and_who_sends_refuse_the_same_urls(
    scheme: str, host: str, rest: str
) -> None:
    _agree(f"{scheme}{host}{rest}")


@pytest.mark.parametrize("url", [*ODD, *USUAL])
def test_who_subscribes_and_who_sends_agree_on_odd_urls(url: str) -> None:
    _agree(url)
