"""What keeps other sites out: the headers of every response, and checks of the browser's."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response

from holdfast.api.problems import Problem
from holdfast.dashboard.limits import NEXT_CHARS_MAX
from holdfast.domain.addresses import is_loopback

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
    " connect-src 'self'; form-action 'self'; frame-src 'self'; base-uri 'none';"
    " frame-ancestors 'none'"
)
# With `no-referrer`, browsers would send `Origin: null` with our own forms.
HEADERS: Final = {
    "content-security-policy": POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "cache-control": "no-store",
}
LOGIN: Final = "/ui/login"
LOGOUT: Final = "/ui/logout"
_LEADS_NOWHERE: Final = (LOGIN, LOGOUT, "/ui/live", "/ui/static/")


def secure(response: Response) -> Response:
    """Add the headers that a response doesn't set itself."""
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    return response


def check_host(request: Request, hosts: Collection[str]) -> None:
    """Raise a Problem if the request is for a name that this server doesn't have. Without `hosts`,
    any name will do: the gate checks it if there are no keys, and sessions belong to one name."""
    name = host_name(request)
    if hosts and not (is_loopback(name) or name in hosts):
        raise Problem("not-allowed", f"the dashboard doesn't answer to the host {name[:100]!r}")


def host_name(request: Request) -> str:
    """The name in the Host header, without the port, in lower case."""
    try:
        return urlsplit(f"//{request.headers.get('host', '')}").hostname or ""
    except ValueError:
        return ""


def check_same_origin(request: Request) -> None:
    """Raise a Problem unless one of our own pages sent this form. Old browsers don't tell, but name
    the page's origin; behind a proxy, that is https though the proxy reaches us by http."""
    site = request.headers.get("sec-fetch-site")
    origin = request.headers.get("origin")
    host = request.headers.get("host", "")
    own = (f"{request.url.scheme}://{host}", f"https://{host}")
    is_own = site == "same-origin" if site is not None else origin is not None
    if not is_own or (origin is not None and origin not in own):
        raise Problem("not-allowed", "forms of other sites are not accepted")


def keeps_cookies(request: Request) -> bool:
    """Whether the browser keeps our cookies, which it does over HTTPS and on its own machine only.
    It tells so by sending `Sec-Fetch-Site`."""
    return (
        request.url.scheme == "https"
        or "sec-fetch-site" in request.headers
        or is_loopback(host_name(request))
    )


def local_path(text: str) -> str:
    """Where a login may lead: one of our own pages, or else the first."""
    is_page = text.startswith("/ui/") and not text.startswith(_LEADS_NOWHERE)
    is_start = text == "/" or text.startswith("/?")
    if len(text) > NEXT_CHARS_MAX or not text.isprintable() or "\\" in text:
        return "/"
    return text if is_page or is_start else "/"
