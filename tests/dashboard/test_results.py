"""What a result contains is recognized by its bytes, and nothing in it runs or is fetched."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import pytest

from holdfast.dashboard.limits import (
    RESULT_CHARS_SHOWN_MAX,
    RESULT_COLUMNS_MAX,
    RESULT_FILES_MAX,
    RESULT_LOOK_MAX,
    RESULT_ROWS_SHOWN_MAX,
)
from holdfast.dashboard.results.exhibit import Table, exhibit, table_of, text_of
from holdfast.dashboard.results.files import OTHER, find_files
from holdfast.dashboard.results.xml import indented

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 40
JPEG = b"\xff\xd8\xff\xe0" + b"\0" * 40
GIF = b"GIF89a" + b"\0" * 40
WEBP = b"RIFF\0\0\0\0WEBP" + b"\0" * 40
PDF = b"%PDF-1.7\n" + b"%" * 40
SVG = '<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'
XML = '<?xml version="1.0"?><a><b>1</b></a><!-- and more to be long enough -->'


def base64(data: bytes) -> str:
    return b64encode(data).decode()


def found(result: Any) -> list[tuple[str, str, bytes]]:
    return [(each.media_type, each.pointer, each.data) for each in find_files(result)]


@pytest.mark.parametrize(
    ("media_type", "data"),
    [
        ("image/png", PNG),
        ("image/jpeg", JPEG),
        ("image/gif", GIF),
        ("image/webp", WEBP),
        ("application/pdf", PDF),
    ],
)
def test_bytes_are_recognized_in_every_form_of_a_result(media_type: str, data: bytes) -> None:
    text = base64(data)
    assert found(text) == [(media_type, "", data)]
    assert found(f"data:{media_type};base64,{text}") == [(media_type, "", data)]
    for noun, member in (("media_type", "data"), ("content_type", "content")):
        file = {noun: f"{media_type}; x=y", member: text, "name": "a"}
        assert found({"pages": [1, file]}) == [(media_type, "/pages/1", data)]


def test_texts_are_recognized_plain_and_in_base64() -> None:
    for media_type, text in (
        ("image/svg+xml", SVG),
        ("application/xml", XML),
        ("text/csv", "a,b\n1,2"),
        ("text/plain", "some words, not base64"),
        ("application/json", '{"a": 1.50}'),
    ):
        for data in (text, base64(text.encode())):
            file = {"media_type": media_type, "data": data}
            assert found(file) == [(media_type, "", text.encode())]
    assert found([SVG, XML]) == [
        ("image/svg+xml", "/0", SVG.encode()),
        ("application/xml", "/1", XML.encode()),
    ]
    assert found("data:text/plain,a%20b%20c and more, so that it is long")[0][2][:5] == b"a b c"


@pytest.mark.parametrize(
    "result",
    [
        {"media_type": "text/html", "data": base64(b"<script>alert(1)</script>")},
        {"media_type": "application/xhtml+xml", "data": base64(SVG.encode())},
        {"media_type": "text/javascript", "data": base64(b"alert(1)")},
        {"media_type": "image/png", "data": base64(b"<html><script>alert(1)</script>")},
        {"media_type": "application/pdf", "data": base64(b"<html>%PDF-1.7")},
        {"media_type": "image/svg+xml", "data": base64(b"<html>")},
        {"media_type": "image/webp", "data": base64(b"RIFF\0\0\0\0AVI ")},
        {"media_type": "text/plain", "data": base64(b"\xff\xfe\x00\x01"), "encoding": "base64"},
        "data:text/html;base64," + base64(b"<script>alert(document.cookie)</script>"),
        "data:text/html,<script>alert(document.cookie)</script> and more",
    ],
)
def test_what_is_not_what_it_says_is_a_download_without_a_type(result: Any) -> None:
    (file,) = find_files(result)
    assert (file.media_type, file.kind) == (OTHER, "other")


@pytest.mark.parametrize(
    "result",
    [
        None, 7, "", "javascript:alert(1)", "https://example.com/a.png", "/etc/passwd",
        "iVBORw0KGgo" + "!" * 40, "JVBERi0" + "A" * 42,
        "/9j/ is the beginning of a path, not a file",
        "data:;base64", "data:image/png;base64,%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%",
        {"media_type": "image/png", "data": 7}, {"media_type": "image/png"},
        {"data": base64(PNG)[:20]},
        {"media_type": "resize", "data": "words"}, {"a": {"media_type": None, "data": "x"}},
    ],
)  # fmt: skip
def test_other_values_are_no_files(result: Any) -> None:
    assert find_files(result) == []


def test_a_hostile_result_costs_no_more_than_its_limits() -> None:
    files = [{"media_type": "image/png", "data": base64(PNG)}] * (RESULT_FILES_MAX + 5)
    assert len(find_files(files)) == RESULT_FILES_MAX
    assert find_files([*range(RESULT_LOOK_MAX), files[0]]) == []
    deep: Any = base64(PNG)
    for _ in range(500):
        deep = [deep]
    assert len(find_files(deep)) == 1


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", 'a";\r\nx: y', "\u202egnp.exe", "", "a" * 500]
)
def test_the_name_of_a_download_is_plain(name: str) -> None:
    (file,) = find_files({"media_type": "image/png", "data": base64(PNG), "name": name})
    assert file.name.isascii()
    assert set('/\\"\r\n ;').isdisjoint(file.name)
    assert 1 <= len(file.name) <= 100
    assert not file.name.startswith(".")


def test_a_list_of_flat_objects_is_a_table_with_exact_numbers() -> None:
    rows = [{"a": 9007199254740993, "b": "x"}, {"b": None, "c": 0.1 + 0.2}, {"c": -0.0}]
    assert exhibit(rows).table == Table(
        ["a", "b", "c"],
        [["9007199254740993", "x", ""], ["", "null", "0.30000000000000004"], ["", "", "-0.0"]],
        numeric=[True, False, True],
    )
    others: list[Any] = [[], [{}], [{"a": [1]}], [{"a": 1}, 2], {"a": 1}, "text"]
    for other in others:
        assert exhibit(other).table is None
    assert exhibit([{f"c{n}": n for n in range(RESULT_COLUMNS_MAX + 1)}]).table is None
    long = exhibit([{"a": n} for n in range(RESULT_ROWS_SHOWN_MAX + 7)]).table
    assert long is not None
    assert (len(long.rows), long.rows_left) == (RESULT_ROWS_SHOWN_MAX, 7)


def test_a_long_result_is_cut() -> None:
    shown = exhibit("a" * (RESULT_CHARS_SHOWN_MAX + 1))
    assert (len(shown.json.text), shown.json.is_cut) == (RESULT_CHARS_SHOWN_MAX, True)
    assert shown.bytes == RESULT_CHARS_SHOWN_MAX + 3
    short = exhibit({"big": 2**63 - 1, "e": 1e22})
    assert not short.json.is_cut
    assert json.loads(short.json.text) == {"big": 2**63 - 1, "e": 1e22}
    assert "9223372036854775807" in short.json.text


def test_csv_is_a_table_of_even_rows() -> None:
    (file,) = find_files({"media_type": "text/csv", "data": 'a,b\n1,"x,\n2\n\n3,4,5\n'})
    table = table_of(file)
    assert table is not None
    assert table.columns == ["a", "b"]
    assert {len(row) for row in table.rows} == {2}
    (bad,) = find_files({"media_type": "text/csv", "data": ",".join("a" * 100)})
    assert table_of(bad) is None


BOMB = '<!DOCTYPE a [<!ENTITY b "x"><!ENTITY c "&b;&b;">]><a>&c;</a>'
OUTSIDE = '<!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]><a>&b;</a>'


@pytest.mark.parametrize("text", [BOMB, OUTSIDE, "<a>", "no xml", "<a>" * 300 + "</a>" * 300])
def test_xml_that_is_not_plain_and_well_formed_stays_as_it_is(text: str) -> None:
    assert indented(text) == text


def test_xml_is_shown_one_element_per_line() -> None:
    text = '<?xml version="1.0"?><x:a k="&lt;"><!--n--><b/><b>1 &amp; 2</b>t<c><d/></c></x:a>'
    assert indented(text).splitlines() == [
        '<?xml version="1.0"?>',
        '<x:a k="&lt;">',
        "  <!--n-->",
        "  <b/>",
        "  <b>1 &amp; 2</b>",
        "  t",
        "  <c>",
        "    <d/>",
        "  </c>",
        "</x:a>",
    ]
    (file,) = find_files({"media_type": "text/xml", "data": "<a><b/></a>"})
    assert text_of(file).text == "<a>\n  <b/>\n</a>"
