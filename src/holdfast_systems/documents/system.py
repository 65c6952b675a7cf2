"""The documents system on one Salesforce organization."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode

from holdfast import ConfigurationError, Holdfast, Retry
from holdfast.store_api import DEFAULT_TENANT
from holdfast_systems.documents import limits
from holdfast_systems.documents.desk import Desk
from holdfast_systems.documents.generate import generate_document
from holdfast_systems.documents.salesforce.client import Salesforce

if TYPE_CHECKING:
    from holdfast.api import Router, Service
    from holdfast.dashboard.systems import SystemPages

SETTINGS: dict[str, Any] = {
    "lease_seconds": limits.LOCK_SECONDS,
    "poll_seconds": limits.POLL_SECONDS,
    "reclaim_seconds": limits.TICK_SECONDS,
    "concurrency": limits.CONCURRENCY,
    "max_attempts": limits.ATTEMPTS_MAX,
}


class Documents:
    """A Holdfast app, `hf`, whose jobs are Salesforce records, and its one job.

    Settings that you pass win over the environment, which wins over the defaults in `SETTINGS`.
    """

    def __init__(self, url: str | None = None, **settings: Any) -> None:
        url = url or os.environ.get("SALESFORCE_URL") or os.environ.get("HOLDFAST_DATABASE_URL")
        if not url or not url.startswith("salesforce"):
            raise ConfigurationError(
                "the documents system needs a Salesforce organization: set SALESFORCE_URL to its"
                " host with a client id and secret, as in salesforce://client_id:client_secret@host"
            )
        defaults = {
            name: value
            for name, value in SETTINGS.items()
            if f"HOLDFAST_{name.upper()}" not in os.environ
        }
        chosen = {**defaults, **settings}
        poll_seconds = chosen.get("poll_seconds") or _from_environment("HOLDFAST_POLL_SECONDS")
        # The store decides when to poll. The worker only has to ask it often enough.
        chosen["poll_seconds"] = min(limits.TICK_SECONDS, poll_seconds)
        self.url = url if poll_seconds == limits.POLL_SECONDS else _at_pace(url, poll_seconds)
        self.hf = Holdfast(self.url, **chosen)
        self.generate_document = self.hf.job(
            queue="documents",
            retry=Retry.schedule(limits.RETRY_SECONDS),
            timeout_seconds=limits.GENERATE_SECONDS_MAX,
        )(generate_document)

        self.add_routes(self.hf)

        @self.hf.resource
        async def salesforce() -> AsyncIterator[Salesforce]:
            """Give handlers a client that they don't share with the store."""
            async with Salesforce(url) as client:
                yield client

    def add_routes(self, service: Holdfast, *, tenant: str = DEFAULT_TENANT) -> None:
        """Add `/documents` to another service, for its keys: Salesforce has no room for any. Keys
        of this tenant may use it, and those that see all tenants. Its dashboard shows them."""

        @cache
        def desk(served: Service) -> Desk:
            return Desk(self.hf, self.url, self.generate_document, served.stopping)

        def make_routes(served: Service) -> Router:
            # Imported here, because workers need no web framework.
            from holdfast_systems.documents.routes import routes

            return routes(desk(served), tenant)

        def make_pages(served: Service) -> SystemPages:
            from holdfast_systems.documents.pages import DocumentPages

            return DocumentPages(desk(served), tenant)

        service.add_routes(make_routes)
        service.add_pages(make_pages)


def _from_environment(name: str) -> float:
    try:
        return float(os.environ[name])
    except ValueError:
        raise ConfigurationError(f"{name} must be a number") from None


def _at_pace(url: str, poll_seconds: float) -> str:
    host, _, query = url.partition("?")
    given = parse_qsl(query, keep_blank_values=True)
    if "poll_seconds" in dict(given):
        return url
    return f"{host}?{urlencode([*given, ('poll_seconds', poll_seconds)])}"
