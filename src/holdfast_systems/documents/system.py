"""The documents system on one Salesforce organization."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from typing import Any

from holdfast import ConfigurationError, Holdfast, Retry
from holdfast_systems.documents import limits
from holdfast_systems.documents.generate import generate_document
from holdfast_systems.documents.salesforce.client import Salesforce

SETTINGS: dict[str, Any] = {
    "lease_seconds": limits.LOCK_SECONDS,
    "poll_seconds": limits.POLL_SECONDS,
    "reclaim_seconds": limits.POLL_SECONDS,
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
        self.hf = Holdfast(url, **{**defaults, **settings})
        self.generate_document = self.hf.job(
            queue="documents",
            retry=Retry.schedule(limits.RETRY_SECONDS),
            timeout_seconds=limits.GENERATE_SECONDS_MAX,
        )(generate_document)

        @self.hf.resource
        async def salesforce() -> AsyncIterator[Salesforce]:
            """Give handlers a client that they don't share with the store."""
            async with Salesforce(url) as client:
                yield client
