"""The shop that worker processes of these tests run."""

from __future__ import annotations

from holdfast import Holdfast
from holdfast.webhooks import Webhooks
from tests.webhooks.shop import AT_ONCE, FAR_SECONDS

hf = Holdfast(reclaim_seconds=0.1, poll_seconds=0.1)
webhooks = Webhooks(
    hf,
    https_only=False,
    allow_private_addresses=True,
    retry=AT_ONCE,
    guard_seconds=FAR_SECONDS,
)
