"""URLs that the systems call, from settings and from other servers."""

from __future__ import annotations

from yarl import URL


def has_usable_host(url: str) -> bool:
    """Whether the URL names a host that can be looked up. The lookup raises for any other."""
    try:
        return bool((URL(url).raw_host or "").encode("idna"))
    except ValueError:
        return False
