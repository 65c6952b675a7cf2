"""/v1/names and /v1/problems: what can be enqueued, and what the codes mean."""

from __future__ import annotations

import jsonschema_rs
import msgspec
import pytest

from holdfast import Holdfast, Retry
from holdfast.api.problems import KINDS
from tests.support.api import served


class Size(msgspec.Struct):
    width: int
    height: int = 10


async def test_names_have_the_schemas_of_arguments_and_result(tmp_path: object) -> None:
    hf = Holdfast(f"sqlite:///{tmp_path}/jobs.db")

    @hf.job(
        name="images/resize",
        aliases=["shrink"],
        queue="images",
        retry=Retry.exponential(max_attempts=3),
        timeout_seconds=60,
        tags=["slow"],
        breaker="gateway",
    )
    async def resize(image: int, size: Size, names: list[str] | None = None) -> str:
        """Make a small copy.

        Args:
            image: Its number.
        """
        return f"{image}{size}{names}"

    @hf.job(executor="process")
    def plain() -> None: ...

    async with served(hf) as client:
        listed = (await client.get("/v1/names")).json()["names"]
        assert [each["name"] for each in listed] == ["images/resize", "plain"]
        for path in ("/v1/names/images%2Fresize", "/v1/names/images/resize", "/v1/names/shrink"):
            assert (await client.get(path)).json() == listed[0]
        found = listed[0]
        assert (found["queue"], found["max_attempts"], found["tags"]) == ("images", 3, ["slow"])
        assert (found["timeout_seconds"], found["breaker"]) == (60, "gateway")
        assert found["description"].startswith("Make a small copy.")
        assert listed[1]["executor"] == "process"
        check = jsonschema_rs.Draft202012Validator(found["arguments"])
        check.validate({"image": 1, "size": {"width": 1}})
        with pytest.raises(jsonschema_rs.ValidationError):
            check.validate({"image": "1", "size": {"width": 1}})
        missing = await client.get("/v1/names/images/resiz")
        assert (missing.status_code, missing.json()["code"]) == (404, "not-found")
        assert "did you mean 'images/resize'?" in missing.json()["detail"]


async def test_the_type_of_every_problem_leads_to_its_explanation(tmp_path: object) -> None:
    hf = Holdfast(f"sqlite:///{tmp_path}/jobs.db")
    await hf.keys.create("anyone", scopes=["read"])
    async with served(hf) as client:
        denied = (await client.get("/v1/jobs")).json()
        explained = await client.get(denied["type"])
        assert explained.json() == {
            "code": denied["code"],
            "status": denied["status"],
            "title": denied["title"],
        }
        listed = (await client.get("/v1/problems")).json()["problems"]
        assert [each["code"] for each in listed] == list(KINDS)
        assert (await client.get("/v1/problems/nothing")).status_code == 404
