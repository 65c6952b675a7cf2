"""Uploads and results on disk: written completely and durably, or not at all."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from uuid import UUID, uuid4
from xml.parsers import expat

from holdfast import ConfigurationError
from holdfast_systems.convert.failures import NOT_A_PDF, PDF_SIZE, ConversionRefused
from holdfast_systems.convert.limits import MIB, PDF_BYTES_MAX, PDF_HEADER_BYTES_MAX

# The parser blocks all other threads, including the one that renews leases.
SLICE_BYTES = 256 * 1024
PDF_MAGIC = b"%PDF-"


class NotXml(Exception):
    pass


class Files:
    """File names consist of ids only: the user's file name is never part of a path."""

    def __init__(self, uploads: Path, results: Path) -> None:
        self.uploads = uploads.absolute()
        self.results = results.absolute()

    def make_folders(self) -> None:
        _make_folder("UPLOADS_DIR", self.uploads)
        _make_folder("RESULTS_DIR", self.results)

    def upload_path(self, upload_id: UUID) -> Path:
        return self.uploads / f"{upload_id}.pdf"

    def result_path(self, job_id: UUID, fence: int) -> Path:
        """The fence is in the name, so that a worker that lost its lease overwrites nothing."""
        return self.results / f"{job_id}.{fence}.xml"

    def recorded_result(self, result_path: str) -> Path:
        """Find a recorded result. A worker may have the same folder under another path."""
        return self.results / Path(result_path).name

    def new_upload(self, upload_id: UUID) -> Upload:
        """Begin an upload. Its folder is made if it is missing."""
        _make_folder("UPLOADS_DIR", self.uploads)
        return Upload(upload_id, self.upload_path(upload_id))

    def write_upload(self, upload_id: UUID, chunks: Iterable[bytes]) -> Upload:
        """Write an upload, checked to be a PDF of a usable size."""
        upload = self.new_upload(upload_id)
        try:
            for chunk in chunks:
                upload.write(chunk)
            upload.finish()
        except BaseException:
            upload.discard()
            raise
        return upload

    def open_upload(self, upload_id: UUID) -> Pdf:
        return Pdf(io.FileIO(self.upload_path(upload_id)))

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


class WholeFile:
    """A file that exists with all its content or not at all, even after a power cut."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._temporary = path.with_name(f".{path.name}.{uuid4().hex}.tmp")
        self._file = self._temporary.open("xb")

    def write(self, content: bytes) -> None:
        self._file.write(content)

    def finish(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self._temporary.replace(self.path)
        _sync_folder(self.path.parent)

    def discard(self) -> None:
        """Leave nothing behind; the first error is the one to report."""
        for remove in (self._file.close, self._temporary.unlink):
            with suppress(OSError):
                remove()


class Upload(WholeFile):
    """A PDF that arrives in chunks. What is not a PDF, or too large, is rejected early."""

    def __init__(self, upload_id: UUID, path: Path) -> None:
        super().__init__(path)
        self.id = upload_id
        self.bytes = 0
        self._header = b""
        self._digest = hashlib.sha256()

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()

    def write(self, content: bytes) -> None:
        self.bytes += len(content)
        if self.bytes > PDF_BYTES_MAX:
            text = f"the PDF is larger than {PDF_BYTES_MAX // MIB} MiB"
            raise ConversionRefused(text, PDF_SIZE, is_too_large=True)
        if len(self._header) < PDF_HEADER_BYTES_MAX:
            self._header += content[: PDF_HEADER_BYTES_MAX - len(self._header)]
            if len(self._header) == PDF_HEADER_BYTES_MAX:
                self._check_header()
        self._digest.update(content)
        super().write(content)

    def finish(self) -> None:
        if not self.bytes:
            raise ConversionRefused("the file is empty", PDF_SIZE)
        self._check_header()
        super().finish()

    def remove(self) -> None:
        """Remove the finished file, which nothing refers to."""
        self.path.unlink(missing_ok=True)

    def _check_header(self) -> None:
        if PDF_MAGIC not in self._header:
            text = f"the file is not a PDF: its first {PDF_HEADER_BYTES_MAX:,} bytes have no %PDF-"
            raise ConversionRefused(text, NOT_A_PDF)


class Pdf(io.BufferedReader):
    """An upload that is read while it is sent. The HTTP client hides why it could not be read."""

    failure: OSError | None = None

    def read(self, size: int | None = -1, /) -> bytes:
        try:
            return super().read(size)
        except OSError as error:
            self.failure = error
            raise


def _make_folder(variable: str, folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(0, "permission denied")
    except OSError as error:
        raise ConfigurationError(
            f"{variable} must be a folder that can be written; {folder} is not:"
            f" {error.strerror or error}"
        ) from error


def write_whole(path: Path, content: bytes) -> None:
    file = WholeFile(path)
    try:
        file.write(content)
        file.finish()
    except BaseException:
        file.discard()
        raise


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
