"""The application of the webhooks demo: what its worker process runs."""

from __future__ import annotations

from holdfast import Holdfast
from holdfast.webhooks import Webhooks
from holdfast_systems.demos.frame import WEBHOOK_RETRY


def make(url: str | None = None) -> tuple[Holdfast, Webhooks]:
    """Allow http and private addresses: the receiver is on this machine."""
    hf = Holdfast(url)
    return hf, Webhooks(hf, https_only=False, allow_private_addresses=True, retry=WEBHOOK_RETRY)


hf, webhooks = make()
