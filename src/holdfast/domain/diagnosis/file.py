"""Is the SQLite file whole, on a disk with room, and on one where it can be locked?"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any, Final

from holdfast.domain.diagnosis.findings import Check, Finding, critical, fine, info, warning
from holdfast.domain.diagnosis.vitals import FileStatus
from holdfast.domain.diagnosis.words import size

FREE_BYTES_CRITICAL: Final = 64 * 1024**2  # the write-ahead log alone takes 4 MB
FREE_BYTES_WARNING: Final = 256 * 1024**2
FREE_SHARE_WARNING: Final = 0.05
LOG_BYTES_MAX: Final = 64 * 1024**2
NETWORK_FILE_SYSTEMS: Final = frozenset(
    {
        "9p", "afs", "afpfs", "ceph", "cifs", "fuse.glusterfs", "fuse.s3fs", "fuse.sshfs",
        "glusterfs", "lustre", "nfs", "nfs4", "smb3", "smbfs", "virtiofs", "webdav",
    }
)  # fmt: skip


def judge_file(file: FileStatus) -> Iterator[Finding]:
    yield _disk(file)
    if file.file_system is not None:
        yield _file_system(file, file.file_system)
    if file.journal_mode is not None:
        yield _journal(file, file.journal_mode)
    if file.check_ended is not None:
        yield _integrity(file, file.check_ended)


def _disk(file: FileStatus) -> Finding:
    facts: dict[str, Any] = {
        "free_bytes": file.free_bytes,
        "disk_bytes": file.disk_bytes,
        "file_bytes": file.size_bytes,
    }
    free = f"the disk of {file.path} has {size(file.free_bytes)} of {size(file.disk_bytes)} free"
    if file.free_bytes < FREE_BYTES_CRITICAL:
        report = critical
    elif file.free_bytes < max(FREE_BYTES_WARNING, FREE_SHARE_WARNING * file.disk_bytes):
        report = warning
    else:
        return fine(Check.DISK, f"{free}; the file is {size(file.size_bytes)}", **facts)
    return report(
        Check.DISK,
        f"{free}; when it is full, no job can be enqueued or settled",
        advice="free up space, or keep less history (history_kept_seconds)",
        **facts,
    )


def _file_system(file: FileStatus, kind: str) -> Finding:
    if kind not in NETWORK_FILE_SYSTEMS:
        return fine(Check.FILE_SYSTEM, f"the file is on this machine ({kind})", kind=kind)
    return critical(
        Check.FILE_SYSTEM,
        f"{file.path} is on a network file system ({kind}): two machines can't share it, and it"
        " may be corrupted",
        advice="move it to a local disk, or use PostgreSQL",
        kind=kind,
    )


def _journal(file: FileStatus, mode: str) -> Finding:
    facts: dict[str, Any] = {"mode": mode, "log_bytes": file.log_bytes}
    if mode != "wal":
        return warning(
            Check.JOURNAL,
            f"the journal mode is {mode}, not wal: readers and writers wait for each other",
            advice="turn wal on, or restart a worker, which does the same",
            command=f"sqlite3 {shlex.quote(file.path)} 'PRAGMA journal_mode = WAL'",
            **facts,
        )
    if file.log_bytes > LOG_BYTES_MAX:
        return warning(
            Check.JOURNAL,
            f"the write-ahead log is {size(file.log_bytes)}: a long-running read transaction"
            " prevents checkpoints",
            advice="find and end that transaction; then",
            command=f"sqlite3 {shlex.quote(file.path)} 'PRAGMA wal_checkpoint(TRUNCATE)'",
            **facts,
        )
    return fine(Check.JOURNAL, f"the write-ahead log is {size(file.log_bytes)}", **facts)


def _integrity(file: FileStatus, check_ended: bool) -> Finding:
    if not check_ended:
        return info(
            Check.INTEGRITY,
            "there was not enough time to check the whole file",
            advice="to check all of it",
            command=f"sqlite3 {shlex.quote(file.path)} 'PRAGMA quick_check'",
        )
    if not file.damage:
        return fine(Check.INTEGRITY, "a quick check of the file found no damage")
    return critical(
        Check.INTEGRITY,
        f"{file.path} is damaged: {'; '.join(file.damage)}",
        advice="stop all workers, copy the file and its -wal, then restore a backup or recover"
        " what can be read",
        command=f"sqlite3 {shlex.quote(file.path)} .recover | sqlite3 recovered.db",
        damage=list(file.damage),
    )
