"""The HTTP API: `holdfast serve` runs it, and `make_api(hf)` is the ASGI application.

The other names are for routes of your own: see `Holdfast.add_routes`.
"""

from holdfast.api.answers import answer
from holdfast.api.app import make_api
from holdfast.api.bodies import read_body, read_bytes
from holdfast.api.callers import AsCaller, Caller, Router, caller_of
from holdfast.api.openapi import describes
from holdfast.api.problems import At, Problem
from holdfast.api.service import Service

__all__ = [
    "AsCaller",
    "At",
    "Caller",
    "Problem",
    "Router",
    "Service",
    "answer",
    "caller_of",
    "describes",
    "make_api",
    "read_body",
    "read_bytes",
]
