"""Requests to a node, and the responses to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from holdfast.servicebus_local.codec import Int, Symbol, encode
from holdfast.servicebus_local.message import APPLICATION, parse
from holdfast.servicebus_local.refusals import ArgumentError, Refused

CORRELATION_ID = 5  # the field of the properties
REPLY_TO = 4
PROPERTIES_HEAD = b"\x00\x53\x73"
VALUE_HEAD = b"\x00\x53\x77"


@dataclass(frozen=True)
class Request:
    """A message that asks for something."""

    message_id: bytes  # encoded
    reply_to: str | None
    properties: dict[str, Any]
    body: Any

    @classmethod
    def read(cls, raw: bytes) -> Request:
        message = parse(raw)
        reply_to = message.fields[REPLY_TO]
        return cls(
            message.first_field,
            reply_to if isinstance(reply_to, str) else None,
            message.application_properties,
            message.value,
        )

    def text(self, name: str) -> str:
        value = self.properties.get(name)
        if not isinstance(value, str):
            raise ArgumentError(f"The request lacks the property {name}.")
        return value

    def respond(self, properties: dict[str, Any], body: Any) -> bytes:
        """The encoded response."""
        fields = b"\x40" * CORRELATION_ID + self.message_id
        size = (len(fields) + 4).to_bytes(4, "big") + (CORRELATION_ID + 1).to_bytes(4, "big")
        head = PROPERTIES_HEAD + b"\xd0" + size + fields
        described = b"\x00\x53" + bytes([APPLICATION]) + encode(properties)
        return head + described + VALUE_HEAD + encode(body)

    def answer(self, status: int, text: str, body: Any) -> bytes:
        """The response of a management node."""
        return self.respond({"statusCode": Int(status), "statusDescription": text}, body)

    def refuse(self, refused: Refused) -> bytes:
        properties = {
            "statusCode": Int(refused.status),
            "statusDescription": str(refused),
            "errorCondition": Symbol(refused.condition),
        }
        return self.respond(properties, {})
