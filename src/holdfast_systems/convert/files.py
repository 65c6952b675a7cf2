"""Uploads and results on the disk: whole files or none, durable before anybody is told."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from uuid import UUID, uuid4
from xml.parsers import expat

# A parser at work stops all other threads, also the one that renews the leases.
SLICE_BYTES = 256 * 1024


class NotXml(Exception):
    pass


class Files:
    """File names are made of ids alone: the name that a user gave is never part of a path."""

    def __init__(self, uploads: Path, results: Path) -> None:
        self.uploads = uploads.absolute()
        self.results = results.absolute()

    def make_folders(self) -> None:
        self.uploads.mkdir(parents=True, exist_ok=True)
        self.results.mkdir(parents=True, exist_ok=True)

    def upload_path(self, upload_id: UUID) -> Path:
        return self.uploads / f"{upload_id}.pdf"

    def result_path(self, job_id: UUID, fence: int) -> Path:
        """The fence is part of the name: a worker that lost the job writes beside, not over."""
        return self.results / f"{job_id}.{fence}.xml"

    def write_upload(self, upload_id: UUID, pdf: bytes) -> None:
        self.make_folders()
        write_whole(self.upload_path(upload_id), pdf)

    def read_upload(self, upload_id: UUID) -> bytes:
        return self.upload_path(upload_id).read_bytes()

    def write_result(self, job_id: UUID, fence: int, xml: bytes) -> Path:
        """Write it, and check what lies on the disk afterwards."""
        path = self.result_path(job_id, fence)
        write_whole(path, xml)
        try:
            check_xml(path.read_bytes())
        except NotXml as error:
            self.remove_result(path)
            raise OSError(f"the written result is not what was written: {error}") from error
        return path

    def remove_result(self, path: Path) -> None:
        path.unlink(missing_ok=True)


def write_whole(path: Path, content: bytes) -> None:
    """Make a file that is there with all its content, or not at all, also after a power cut."""
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
    """Refuse what is empty or not well-formed, and entities, which can make little text huge."""
    if not content:
        raise NotXml("it is empty")
    parser = expat.ParserCreate()
    parser.EntityDeclHandler = _refuse_entity
    try:
        for start in range(0, len(content), SLICE_BYTES):
            parser.Parse(content[start : start + SLICE_BYTES], False)
        parser.Parse(b"", True)
    except (expat.ExpatError, LookupError, ValueError) as error:  # two are about its encoding
        raise NotXml(f"it is not well-formed XML: {error}") from error


def _refuse_entity(*_declaration: object) -> None:
    raise NotXml("it declares entities")
