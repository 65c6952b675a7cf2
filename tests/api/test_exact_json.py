"""JSON is kept exactly or refused, with a pointer: numbers, texts, names, depth."""

from __future__ import annotations

import json
import math
import time
import tracemalloc
from decimal import Decimal
from typing import Any

import httpx
import pytest
from hypothesis import given, strategies

from holdfast import Holdfast
from holdfast.api.answers import encode
from holdfast.api.exact_json import BadJson, parse, pointer_to
from holdfast.api.limits import DEPTH_MAX
from tests.support.api import served

KEPT = [
    "9223372036854775807",
    "-9223372036854775808",
    "0",
    "-0.0",
    "0.1",
    "1.0",
    "1",
    "5e-324",
    "1.7976931348623157e308",
    "0.30000000000000004",
    '"9223372036854775808"',
    '"0.1000000000000000055511151231257827"',
    "true",
    "null",
    '"\U0001f980 \u2028"',
]
REFUSED = [
    "9223372036854775808",
    "-9223372036854775809",
    "1e400",
    "-1e400",
    "1e-400",
    "1e-99999999999999999999",
    "1e99999999999999999999",
    "-0",
    "0.1000000000000000055511151231257827",
    "9" * 4300,
    "1" + "0" * 4300 + ".5",
    "NaN",
    "Infinity",
    "-Infinity",
    '"\\u0000"',
    '"\\ud800"',
    '"\\udc00\\ud800"',
    '{"x": 1, "x": 2}',
    '{"\\u0000": 1}',
]
NOT_JSON = [b"", b"{", b"\xff", b'"\xed\xa0\x80"', b"\xef\xbb\xbf{}", b"[1,]", b"'x'", b"01", b"+1"]

numbers = strategies.one_of(
    strategies.integers(-(2**70), 2**70).map(str),
    strategies.floats(allow_nan=False, allow_infinity=False).map(repr),
    strategies.decimals(allow_nan=False, allow_infinity=False).map(lambda each: f"{each:f}"),
    strategies.from_regex(
        r"-?(0|[1-9][0-9]{0,25})(\.[0-9]{1,25})?([eE][+-]?[0-9]{1,4})?", fullmatch=True
    ),
)


@pytest.mark.parametrize("text", KEPT)
def test_what_is_kept_comes_back_byte_for_byte(text: str) -> None:
    body = f'{{"value":[{text}]}}'.encode()
    assert encode(parse(body)) == body


@pytest.mark.parametrize("text", REFUSED)
def test_what_cant_be_kept_is_refused_with_a_pointer(text: str) -> None:
    with pytest.raises(BadJson) as refused:
        parse(f'{{"a/b": [0, {text}]}}'.encode())
    assert refused.value.pointer == "/a~1b/1"
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize("data", NOT_JSON)
def test_what_is_not_json_is_refused(data: bytes) -> None:
    with pytest.raises(BadJson):
        parse(data)


def test_depth_is_limited_whatever_it_is_made_of() -> None:
    for start, end in (("[", "]"), ('{"x":', "}")):
        inner = "1" if end == "}" else ""
        parse(f"{start * DEPTH_MAX}{inner}{end * DEPTH_MAX}".encode())
        for depth in (DEPTH_MAX + 1, 500, 100_000):
            with pytest.raises(BadJson, match="nested") as refused:
                parse(f"{start * depth}{inner}{end * depth}".encode())
            assert refused.value.pointer is not None


def test_an_object_with_many_members_takes_no_longer_if_one_occurs_twice() -> None:
    members = ",".join(f'"{number}":0' for number in range(60_000))
    started = time.process_time()
    with pytest.raises(BadJson, match="'59999' appears twice"):
        parse(f'{{{members},"59999":0}}'.encode())
    assert time.process_time() - started < 5


@given(numbers)
def test_every_number_is_the_same_afterwards_or_refused(text: str) -> None:
    try:
        value = parse(text.encode())
    except BadJson:
        return
    kept = encode(value).decode()
    assert Decimal(kept) == Decimal(text)
    assert math.copysign(1, value) == (-1 if text.startswith("-") else 1)
    assert isinstance(value, float) == any(mark in text for mark in ".eE")
    assert encode(parse(kept.encode())).decode() == kept


documents = strategies.recursive(
    strategies.none()
    | strategies.booleans()
    | strategies.floats(allow_nan=False, allow_infinity=False)
    | strategies.integers(-(2**63), 2**63 - 1)
    | strategies.text(),
    lambda inner: strategies.lists(inner) | strategies.dictionaries(strategies.text(), inner),
    max_leaves=10,
)


@given(documents)
def test_every_document_is_parsed_as_python_would_or_refused(value: Any) -> None:
    data = json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")
    try:
        parsed = parse(data)
    except BadJson:
        assert any(character in data.decode("utf-8", "surrogatepass") for character in ("\\u0000",))
        return
    assert repr(parsed) == repr(value)


@pytest.mark.parametrize("bad", ["[" * 80 + "]" * 80, "1e400"])
def test_a_refusal_takes_little_memory_however_long_the_name_before_it(bad: str) -> None:
    name = "a" * 50_000
    data = f'{{"{name}":[{"[]," * 5_000}{bad}]}}'.encode()
    tracemalloc.start()
    try:
        with pytest.raises(BadJson) as refused:
            parse(data)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert str(refused.value.pointer).startswith(f"/{name}/5000")
    assert peak_bytes < 20 * len(data)


def test_pointers_escape_their_steps() -> None:
    assert pointer_to("a/b", "~", 3, "") == "/a~1b/~0/3/"


async def test_numbers_come_back_from_the_database_as_they_went_in(store_url: str) -> None:
    hf = Holdfast(store_url)

    @hf.job
    async def echo(value: Any) -> Any:
        return value

    async def post(client: httpx.AsyncClient, text: str) -> httpx.Response:
        body = f'{{"name":"echo","arguments":{{"value":[{text}]}}}}'
        headers = {"content-type": "application/json"}
        return await client.post("/v1/jobs", content=body.encode(), headers=headers)

    async with served(hf) as client:
        made = [await post(client, text) for text in KEPT]
        assert {each.status_code for each in made} == {201}
        await hf.run_due()
        for text, each in zip(KEPT, made, strict=True):
            found = (await client.get(each.headers["location"])).content
            assert f'"arguments":{{"value":[{text}]}}'.encode() in found
            assert f'"result":[{text}]'.encode() in found
        for text in REFUSED:
            refused = await post(client, text)
            assert refused.status_code == 400
            assert refused.json()["errors"][0]["pointer"].startswith("/arguments/value/0")
