"""Why the gateway does not convert something, as the HTTP status that says so."""

from __future__ import annotations


class Refused(Exception):
    """Told to the client in one line.

    400  there is no PDF                 415  the request is no form
    406  the client does not take XML    422  the PDF, or the mapping, can't be converted
    413  it is too large                 500, 503  the gateway's own trouble
    """

    def __init__(self, status: int, text: str, retry_after_seconds: int | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.retry_after_seconds = retry_after_seconds
