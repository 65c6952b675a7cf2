"""Read the body of a request, up to a size limit."""

from __future__ import annotations

from fastapi import Request


class TooLarge(Exception):
    pass


async def read_body(request: Request, bytes_max: int) -> bytes:
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > bytes_max:
            raise TooLarge(f"the request is larger than {bytes_max} bytes")
    return bytes(body)
