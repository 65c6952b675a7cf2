"""The shop of the webhooks' demonstration: what its worker process runs."""

from __future__ import annotations

from holdfast import Holdfast, Retry
from holdfast.webhooks import Webhooks

# Nobody wants to watch a retry for five minutes.
RETRY = Retry.schedule([0.3, 0.6])


def make(url: str | None = None) -> tuple[Holdfast, Webhooks]:
    """The receiver is on this machine, so what is safe on the internet is switched off."""
    hf = Holdfast(url)
    return hf, Webhooks(hf, https_only=False, allow_private_addresses=True, retry=RETRY)


hf, webhooks = make()
