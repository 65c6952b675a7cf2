"""Remove uploads and results after their retention, and files that nothing refers to.

Every worker does it, in small steps that can be repeated. A file goes before its row, so that a
crash between the two leaves a row that is looked at again, not a file that nobody knows.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec

from holdfast import Holdfast, SweepContext
from holdfast_systems.convert.files import Files
from holdfast_systems.convert.limits import (
    CLEANUP_FILES_MAX,
    CLEANUP_ROWS_MAX,
    ORPHAN_SECONDS_MAX,
)
from holdfast_systems.convert.records import Records
from holdfast_systems.convert.settings import ConvertSettings

CONVERSIONS_EVERY_SECONDS: Final = 60.0
ORPHANS_EVERY_SECONDS: Final = 3600.0
_START: Final = UUID(int=0)
_ID: Final = r"(?P<id>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})"
_UPLOAD: Final = re.compile(rf"{_ID}\.pdf")
_RESULT: Final = re.compile(rf"{_ID}\.\d+\.xml")
_UNFINISHED: Final = re.compile(rf"\.{_ID}\.(?:pdf|\d+\.xml)\.[0-9a-f]{{32}}\.tmp")


class _Upload(msgspec.Struct, frozen=True):
    upload_id: UUID


class _Row(msgspec.Struct, frozen=True):
    job_id: UUID


class _Known(msgspec.Struct, frozen=True):
    id: UUID


class _Result(msgspec.Struct, frozen=True):
    job_id: UUID
    result_path: str | None


class _Old(NamedTuple):
    id: UUID
    path: Path


class Cleanup:
    def __init__(
        self, hf: Holdfast, records: Records, files: Files, settings: ConvertSettings
    ) -> None:
        self._hf = hf
        self._tables = records.tables
        self._files = files
        self._uploads_kept = timedelta(seconds=settings.uploads_kept_seconds)
        self._results_kept = timedelta(seconds=settings.results_kept_seconds)
        self._noted_up_to = _START
        self._names: deque[tuple[Path, str]] = deque()

    async def clean_up_conversions(self, _ctx: SweepContext) -> float | None:
        """Take one step of the rows. Return 0 if there is more to do right now."""
        now = await self._hf.now()
        is_done = [
            await self._note_ends(),
            await self._remove_uploads(now - self._uploads_kept),
            await self._remove_conversions(now - self._results_kept),
        ]
        return None if all(is_done) else 0.0

    async def remove_orphans(self, _ctx: SweepContext) -> float | None:
        """Look at some files, and remove those that nothing refers to. Return 0 if there are more.

        A file that was just written may belong to a transaction that has not been committed yet.
        """
        if not self._names:
            self._names.extend(await asyncio.to_thread(_names, self._files))
        count = min(len(self._names), CLEANUP_FILES_MAX)
        names = [self._names.popleft() for _ in range(count)]
        before = (await self._hf.now()).timestamp() - ORPHAN_SECONDS_MAX
        uploads, results, unfinished = await asyncio.to_thread(_sort, names, before)
        orphans = [
            *unfinished,
            *await self._unknown_uploads(uploads),
            *await self._unknown_results(results),
        ]
        await asyncio.to_thread(_unlink, orphans)
        return 0.0 if self._names else None

    async def _note_ends(self) -> bool:
        page = {"after": self._noted_up_to, "rows_max": CLEANUP_ROWS_MAX}
        async with self._hf.transaction() as connection:
            statements = self._tables.on(connection)
            last = await statements.one("last_open", _Row, **page)
            await statements.execute("note_ends", **page)
        self._noted_up_to = _START if last is None else last.job_id
        return last is None

    async def _remove_uploads(self, before: datetime) -> bool:
        found = await self._read("old_uploads", _Upload, before=before, rows_max=CLEANUP_ROWS_MAX)
        ids = dict.fromkeys(each.upload_id for each in found)
        await asyncio.to_thread(_unlink, [self._files.upload_path(each) for each in ids])
        for upload_id in ids:
            async with self._hf.transaction() as connection:
                await self._tables.on(connection).execute(
                    "note_upload_removed", upload_id=upload_id
                )
        return len(found) < CLEANUP_ROWS_MAX

    async def _remove_conversions(self, before: datetime) -> bool:
        found = await self._read(
            "old_conversions", _Result, before=before, rows_max=CLEANUP_ROWS_MAX
        )
        paths = [
            self._files.recorded_result(each.result_path) for each in found if each.result_path
        ]
        await asyncio.to_thread(_unlink, paths)
        for each in found:
            async with self._hf.transaction() as connection:
                await self._tables.on(connection).execute(
                    "delete_conversion", job_id=each.job_id, before=before
                )
        return len(found) < CLEANUP_ROWS_MAX

    async def _unknown_uploads(self, uploads: Sequence[_Old]) -> list[Path]:
        found = await self._read("known_uploads", _Known, ids=_ids(uploads)) if uploads else []
        known = {each.id for each in found}
        return [each.path for each in uploads if each.id not in known]

    async def _unknown_results(self, results: Sequence[_Old]) -> list[Path]:
        found = await self._read("known_results", _Result, ids=_ids(results)) if results else []
        known = {Path(each.result_path).name for each in found if each.result_path}
        return [each.path for each in results if each.path.name not in known]

    async def _read(self, statement: str, kind: type[Any], **values: Any) -> Sequence[Any]:
        async with self._hf.transaction(read_only=True) as connection:
            return await self._tables.on(connection).all(statement, kind, **values)


def _names(files: Files) -> list[tuple[Path, str]]:
    names = []
    for folder in (files.uploads, files.results):
        with suppress(FileNotFoundError):  # nothing was uploaded yet
            names += [(folder, name) for name in os.listdir(folder)]
    return names


def _sort(
    names: Sequence[tuple[Path, str]], before: float
) -> tuple[list[_Old], list[_Old], list[Path]]:
    """Find our own old files: uploads, results, and those that were never finished."""
    uploads: list[_Old] = []
    results: list[_Old] = []
    unfinished: list[Path] = []
    for folder, name in names:
        path = folder / name
        if (upload := _UPLOAD.fullmatch(name)) and _is_old(path, before):
            uploads.append(_Old(UUID(upload["id"]), path))
        elif (result := _RESULT.fullmatch(name)) and _is_old(path, before):
            results.append(_Old(UUID(result["id"]), path))
        elif _UNFINISHED.fullmatch(name) and _is_old(path, before):
            unfinished.append(path)
    return uploads, results, unfinished


def _is_old(path: Path, before: float) -> bool:
    with suppress(FileNotFoundError):  # another worker was faster
        return path.stat().st_mtime < before
    return False


def _unlink(paths: Sequence[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)


def _ids(files: Sequence[_Old]) -> str:
    return msgspec.json.encode([str(each.id) for each in files]).decode()
