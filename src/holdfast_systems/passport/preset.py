"""The preset for subscribers of passport events: `webhooks.subscribe(..., preset="bpc")`."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from typing import Final

import msgspec

from holdfast import Retry
from holdfast.webhooks import Message, Preset, Request


def _make_request(message: Message, keys: Sequence[bytes]) -> Request:
    body = msgspec.json.encode(
        {
            "event_id": message.event_id,
            "event_type": message.event_type,
            "aggregate_type": message.aggregate_type,
            "aggregate_id": message.aggregate_id,
            "occurred_at": message.occurred_at,
            "payload": msgspec.Raw(message.payload.encode()),
        }
    )
    headers = {
        "X-BPC-Signature": f"sha256={hmac.new(keys[-1], body, hashlib.sha256).hexdigest()}",
        "X-BPC-Event-Type": message.event_type,
        "X-BPC-Delivery-Id": str(message.saga_id),
        "Content-Type": "application/json",
    }
    return Request(headers, body)


# Of `Webhooks`, for a whole request.
TIMEOUT_SECONDS: Final = 30.0

BPC: Final = Preset(
    name="bpc",
    make_request=_make_request,
    retry=Retry.schedule([2, 4, 8, 16]),
    refusals_are_permanent=True,
)
