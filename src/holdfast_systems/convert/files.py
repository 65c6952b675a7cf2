"""Uploads and results on disk: written completely and durably, or not at all."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from uuid import UUID, uuid4
from xml.parsers import expat

# The parser blocks all other threads, including the one that renews leases.
SLICE_BYTES = 256 * 1024


class NotXml(Exception):
    pass


class Files:
    """File names consist of ids only: the user's file name is never part of a path."""

    def __init__(self, uploads: Path, results: Path) -> None:
        self.uploads = uploads.absolute()
        self.results = results.absolute()

    def make_folders(self) -> None:
        self.uploads.mkdir(parents=True, exist_ok=True)
        self.results.mkdir(parents=True, exist_ok=True)

    def upload_path(self, upload_id: UUID) -> Path:
        return self.uploads / f"{upload_id}.pdf"

    def result_path(self, job_id: UUID, fence: int) -> Path:
        """The fence is in the name, so that a worker that lost its lease overwrites nothing."""
        return self.results / f"{job_id}.{fence}.xml"

    def write_upload(self, upload_id: UUID, pdf: bytes) -> None:
        self.make_folders()
        write_whole(self.upload_path(upload_id), pdf)

    def write_result(self, job_id: UUID, fence: int, xml: bytes) -> Path:
        """Write the file, then check what is on disk."""
        path = self.result_path(job_id, fence)
        write_whole(path, xml)
        try:
            check_xml(path.read_bytes())
        except NotXml as error:
            path.unlink(missing_ok=True)
            raise OSError(f"the file on disk is not what was written: {error}") from error
        return path


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that it exists with all its content or not at all, even after a power cut."""
    temporary = path.with_name(f".{path.name}.{uuid4().hex}.tmp")
    try:
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def check_xml(content: bytes) -> None:
    """Reject content that is empty, not well-formed, or declares entities, which can explode."""
    if not content:
        raise NotXml("it is empty")
    parser = expat.ParserCreate()
    parser.EntityDeclHandler = _refuse_entity
    try:
        for start in range(0, len(content), SLICE_BYTES):
            parser.Parse(content[start : start + SLICE_BYTES], False)
        parser.Parse(b"", True)
    except (expat.ExpatError, LookupError, ValueError) as error:  # the last two: a bad encoding
        raise NotXml(f"it is not well-formed XML: {error}") from error


def _refuse_entity(*_declaration: object) -> None:
    raise NotXml("it declares entities")
