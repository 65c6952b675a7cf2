"""The documents system on one Salesforce organization."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from typing import Any

from holdfast import ConfigurationError, Context, Holdfast, Retry
from holdfast_systems.documents import limits
from holdfast_systems.documents.generate import generate
from holdfast_systems.documents.salesforce.client import Salesforce

QUEUE = "documents"
SETTINGS: dict[str, Any] = {
    "lease_seconds": limits.LOCK_SECONDS,
    "poll_seconds": limits.POLL_SECONDS,
    "reclaim_seconds": limits.POLL_SECONDS,
    "concurrency": limits.CONCURRENCY,
    "max_attempts": limits.ATTEMPTS_MAX,
}


class Documents:
    """The Holdfast object `hf`, whose jobs are records, and the one job that they are.

    Settings of the environment win over the defaults above, and the given ones over both.
    """

    def __init__(self, url: str | None = None, **settings: Any) -> None:
        url = url or os.environ.get("SALESFORCE_URL") or os.environ.get("HOLDFAST_DATABASE_URL")
        if not url or not url.startswith("salesforce"):
            raise ConfigurationError(
                "the documents system needs SALESFORCE_URL, as in"
                " salesforce://client_id:client_secret@host"
            )
        defaults = {
            name: value
            for name, value in SETTINGS.items()
            if f"HOLDFAST_{name.upper()}" not in os.environ
        }
        self.hf = Holdfast(url, **{**defaults, **settings})
        self.generate_document = self.hf.job(
            queue=QUEUE,
            retry=Retry.schedule(limits.RETRY_SECONDS),
            timeout_seconds=limits.GENERATE_SECONDS_MAX,
        )(generate_document)
        self._add_client(url)

    def _add_client(self, url: str) -> None:
        """Give the handlers a client of their own, beside the store's."""

        @self.hf.resource
        async def salesforce() -> AsyncIterator[Salesforce]:
            async with Salesforce(url) as client:
                yield client


async def generate_document(
    ctx: Context, template: str, data: dict[str, Any], request_hash: str = ""
) -> dict[str, str]:
    """Render the document; the store says which hash the record has."""
    return await generate(ctx, template, data, request_hash)
