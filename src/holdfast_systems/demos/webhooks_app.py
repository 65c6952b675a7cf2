"""The application of the webhooks demo: what its worker process runs."""

from __future__ import annotations

from holdfast import Holdfast, Retry
from holdfast.webhooks import Webhooks

# Short delays, for a demo that takes seconds.
RETRY = Retry.schedule([0.3, 0.6])


def make(url: str | None = None) -> tuple[Holdfast, Webhooks]:
    """Allow http and private addresses: the receiver is on this machine."""
    hf = Holdfast(url)
    return hf, Webhooks(hf, https_only=False, allow_private_addresses=True, retry=RETRY)


hf, webhooks = make()
