"""Errors with the API's own codes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class ApiError(Exception):
    """A refused call, or one refused record of many."""

    def __init__(
        self, code: str, message: str, fields: Sequence[str] | None = None, *, status: int = 400
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.fields = fields
        self.status = status

    def body(self) -> list[dict[str, Any]]:
        """Return the body of an answer with this error alone."""
        error: dict[str, Any] = {"message": self.message, "errorCode": self.code}
        if self.fields is not None:
            error["fields"] = list(self.fields)
        return [error]

    def beside_record(self) -> dict[str, Any]:
        """Return the error as part of a list of results, where the code has another name."""
        return {"statusCode": self.code, "message": self.message, "fields": list(self.fields or [])}


def not_found() -> ApiError:
    return ApiError("NOT_FOUND", "The requested resource does not exist", status=404)


def not_allowed(method: str) -> ApiError:
    return ApiError("METHOD_NOT_ALLOWED", f"HTTP Method '{method}' not allowed.", status=405)


def cannot_read(message: str) -> ApiError:
    return ApiError("JSON_PARSER_ERROR", message)
