"""The body of a request, read as far as its limit."""

from __future__ import annotations

from fastapi import Request


class TooLarge(Exception):
    pass


async def read_body(request: Request, bytes_max: int) -> bytes:
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > bytes_max:
            raise TooLarge(f"a request has at most {bytes_max} bytes")
    return bytes(body)
