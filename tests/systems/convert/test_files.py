"""Uploads and results on the disk."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import ConfigurationError
from holdfast_systems.convert.failures import ConversionRefused
from holdfast_systems.convert.files import SLICE_BYTES, Files, NotXml, check_xml, write_whole

pytestmark = pytest.mark.heavy

JOB = UUID(int=7)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    made = Files(tmp_path / "a" / "uploads", tmp_path / "b" / "results")
    made.make_folders()
    return made


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_writer_renames_and_verifies(files: Files) -> None:
    path = files.write_result(JOB, 4, b"<a>1</a>")
    assert path == files.results / f"{JOB}.4.xml"
    assert path.read_bytes() == b"<a>1</a>"
    assert names(files.results) == [path.name]


def test_a_recorded_path_leads_there_from_any_folder() -> None:
    assert Files(Path("uploads"), Path("results")).result_path(JOB, 1).is_absolute()


def test_a_result_that_does_not_hold_up_is_taken_back(files: Files) -> None:
    for broken in (b"", b"<a>"):
        with pytest.raises(OSError, match="not what was written"):
            files.write_result(JOB, 4, broken)
        assert names(files.results) == []


def test_every_fence_has_a_file_of_its_own(files: Files) -> None:
    files.write_result(JOB, 3, b"<owner/>")
    files.write_result(JOB, 1, b"<late/>")
    assert (files.results / f"{JOB}.3.xml").read_bytes() == b"<owner/>"


def test_a_file_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "taken.xml").mkdir()
    with pytest.raises(OSError, match="directory"):
        write_whole(tmp_path / "taken.xml", b"<a/>")
    assert names(tmp_path) == ["taken.xml"]
    assert names(tmp_path / "taken.xml") == []


def test_an_upload_is_read_as_it_was_written(files: Files) -> None:
    files.write_upload(JOB, [b"%P", b"DF-1.7"])
    assert names(files.uploads) == [f"{JOB}.pdf"]
    assert files.upload_path(JOB).read_bytes() == b"%PDF-1.7"


def test_a_folder_that_cannot_be_made_is_named_with_its_variable(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match="RESULTS_DIR must be a folder that can be"):
        Files(tmp_path / "uploads", tmp_path / "file" / "results").make_folders()


@pytest.mark.parametrize("content", [b"", b"<html>", bytes(2000) + b"%PDF-1.7"])
def test_what_is_no_pdf_leaves_nothing_behind(files: Files, content: bytes) -> None:
    with pytest.raises(ConversionRefused):
        files.write_upload(JOB, [content])
    assert names(files.uploads) == []


def test_the_magic_bytes_may_follow_some_others(files: Files) -> None:
    files.write_upload(JOB, [b"\n", b"%PD", b"F-1.7"])
    assert names(files.uploads) == [f"{JOB}.pdf"]


def test_entities_that_grow_are_refused() -> None:
    laughs = "".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 10))
    with pytest.raises(NotXml, match="entities"):
        check_xml(f'<!DOCTYPE a [<!ENTITY a0 "ha">{laughs}]><a>&a9;</a>'.encode())


@pytest.mark.parametrize("encoding", ["shift_jis", "utf-7", "rot13", "no-such-encoding"])
def test_an_encoding_that_is_not_read_is_refused(encoding: str) -> None:
    with pytest.raises(NotXml, match="not well-formed"):
        check_xml(f'<?xml version="1.0" encoding="{encoding}"?><a/>'.encode())


def test_a_large_text_is_checked_to_its_end() -> None:
    text = "€" * SLICE_BYTES
    check_xml(f"<a>{text}</a>".encode())
    with pytest.raises(NotXml):
        check_xml(f"<a>{text}".encode())


@given(st.binary(max_size=200))
def test_whatever_the_bytes_are_the_check_answers(content: bytes) -> None:
    try:
        check_xml(content)
    except NotXml:
        return
    assert content.strip().startswith(b"<")
