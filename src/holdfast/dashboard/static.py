"""Styles and scripts, kept in memory, at URLs that change with their content."""

from __future__ import annotations

from hashlib import sha256
from importlib.resources import files
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from holdfast.api.problems import Problem

PATH: Final = "/ui/static/{version}/{file}"
_TYPES: Final = {
    "css": "text/css",
    "js": "text/javascript",
    "svg": "image/svg+xml",
    "png": "image/png",
}
_FOREVER: Final = "public, max-age=31536000, immutable"
_VERSION_CHARS: Final = 12


class Static:
    def __init__(self, package: str) -> None:
        self._files = {
            each.name: each.read_bytes()
            for each in files(package).joinpath("static").iterdir()
            if each.name.rpartition(".")[2] in _TYPES
        }
        digest = sha256()
        for name, data in sorted(self._files.items()):
            digest.update(f"{name} {len(data)} ".encode() + data)
        self._version = digest.hexdigest()[:_VERSION_CHARS]

    def url(self, name: str) -> str:
        """Scripts of one version import each other by relative paths."""
        assert name in self._files, f"there is no static file {name}"
        return f"/ui/static/{self._version}/{name}"

    async def answer(self, request: Request) -> Response:
        name = request.path_params["file"]
        data = self._files.get(name)
        if data is None:
            raise Problem("not-found", f"there is no file {name[:100]}")
        response = Response(data, media_type=_TYPES[name.rpartition(".")[2]])
        # A page from before an update gets the new file, but doesn't keep it.
        is_current = request.path_params["version"] == self._version
        response.headers["cache-control"] = _FOREVER if is_current else "no-store"
        return response
