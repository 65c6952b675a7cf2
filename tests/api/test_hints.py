"""Without the dashboard's extra, `/` says how to get it."""

from __future__ import annotations

from holdfast import Holdfast
from holdfast.api.hints import make_hint
from tests.support.api import served


async def test_without_the_extra_the_first_page_says_what_to_install(local_hf: Holdfast) -> None:
    async with served(local_hf, pages=make_hint) as client:
        answer = await client.get("/")
        assert (answer.status_code, answer.headers["content-type"]) == (
            404, "text/plain; charset=utf-8",
        )  # fmt: skip
        assert "pip install 'holdfast[dashboard]'" in answer.text
        assert (await client.get("/v1/me")).status_code == 200
