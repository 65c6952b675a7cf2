"""The command `holdfast-passport`: from documents to passports, and to the check of one.

All commands except `verify` work on the database and with the settings of `passport.app`.
"""

from __future__ import annotations

import asyncio
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import click
import msgspec

from holdfast import HoldfastError
from holdfast_systems.passport.errors import PassportError, ValidationError
from holdfast_systems.passport.files import LABEL, read_files, write_files
from holdfast_systems.passport.keys import keys_from_environment
from holdfast_systems.passport.limits import DOCUMENT_BYTES_MAX, PAGE_ROWS_MAX, RULES_BYTES_MAX
from holdfast_systems.passport.read import read_limited
from holdfast_systems.passport.receipt import read_receipt
from holdfast_systems.passport.schema import BILL_OF_MATERIALS
from holdfast_systems.passport.system import Passport
from holdfast_systems.passport.verifier import Sealed, verify

T = TypeVar("T")

KEY_BYTES = 32
FAILED_CODE = 1
BY = "holdfast-passport"  # in the audit log

_file = click.Path(exists=True, dir_okay=False, path_type=Path)
_folder = click.Path(file_okay=False, path_type=Path)
_tenant = click.option("--tenant", default="default", show_default=True, help="Whose it is.")


@click.group()
def main() -> None:
    """Make battery passports from documents, and verify them."""


def _run(work: Callable[[Passport], Awaitable[T]]) -> T:
    """Do the work on the application's database; errors end the command with one line."""

    async def run() -> T:
        # Imported here: `verify` needs neither settings nor a database.
        from holdfast_systems.passport.app import hf, passport

        async with hf:
            return await work(passport)

    try:
        return asyncio.run(run())
    except PassportError as error:
        raise click.ClickException(f"{error.code}: {error}") from None
    except HoldfastError as error:
        raise click.ClickException(str(error)) from None


def _tell(value: object) -> None:
    click.echo(msgspec.json.encode(value).decode())


def _read(path: Path, bytes_max: int) -> bytes:
    try:
        return read_limited(path, bytes_max)
    except ValidationError as error:
        raise click.ClickException(str(error)) from None


@main.command("open")
@_tenant
def open_snapshot(tenant: str) -> None:
    """Open a snapshot, which collects documents."""
    snapshot_id = _run(lambda passport: passport.open_snapshot(tenant, by=BY))
    _tell({"snapshot_id": snapshot_id})


@main.command()
@click.argument("snapshot", type=click.UUID)
@click.argument("file", type=_file)
@click.option("--name", help="The document's name; by default, the file's.")
@click.option("--schema", default=BILL_OF_MATERIALS.version, show_default=True)
@_tenant
def upload(snapshot: UUID, file: Path, name: str | None, schema: str, tenant: str) -> None:
    """Upload a document into a snapshot. A job reads its facts."""
    content = _read(file, DOCUMENT_BYTES_MAX)
    added = _run(
        lambda passport: passport.add_document(
            tenant, snapshot, name or file.name, content, schema_version=schema, by=BY
        )
    )
    _tell({"document_version_id": added.document_version_id, "job_id": added.job.id})


@main.command()
@click.argument("snapshot", type=click.UUID)
@_tenant
def seal(snapshot: UUID, tenant: str) -> None:
    """Seal a snapshot: from now on, nothing in it changes."""
    _run(lambda passport: passport.seal_snapshot(tenant, snapshot, by=BY))
    _tell({"snapshot_id": snapshot, "status": "SEALED"})


@main.command("add-rules")
@click.argument("file", type=_file)
@_tenant
def add_rules(file: Path, tenant: str) -> None:
    """Add a rule package as a draft."""
    source = _read(file, RULES_BYTES_MAX)
    _tell({"rules_id": _run(lambda passport: passport.add_rules(tenant, source, by=BY))})


@main.command()
@click.argument("rules", type=click.UUID)
@_tenant
def publish(rules: UUID, tenant: str) -> None:
    """Publish rules, after a check of their types."""
    _run(lambda passport: passport.publish_rules(tenant, rules, by=BY))
    _tell({"rules_id": rules, "status": "PUBLISHED"})


@main.command("compile")
@click.option("--passport", "passport_id", type=click.UUID, required=True)
@click.option("--snapshot", type=click.UUID, required=True)
@click.option("--rules", type=click.UUID, required=True)
@click.option("--build", required=True, help="The build ID, such as 1.4.2.")
@click.option("--issued-at", type=click.DateTime(["%Y-%m-%dT%H:%M:%S%z"]), help="Default: now.")
@_tenant
def compile_version(
    passport_id: UUID,
    snapshot: UUID,
    rules: UUID,
    build: str,
    issued_at: datetime | None,
    tenant: str,
) -> None:
    """Compile, sign and publish a passport version."""

    async def order(passport: Passport) -> dict[str, UUID]:
        made = await passport.order(
            passport_id=passport_id,
            snapshot_id=snapshot,
            rules_id=rules,
            build_id=build,
            issued_at=issued_at,
        )
        job = await passport.compile(tenant, made)
        return {"passport_version_id": made.version_id(tenant), "job_id": job.id}

    _tell(_run(order))


@main.command()
@click.argument("version", type=click.UUID)
@_tenant
def sign(version: UUID, tenant: str) -> None:
    """Sign a compiled version. One that is signed keeps its signature."""
    _tell({"job_id": _run(lambda passport: passport.sign(tenant, version)).id})


@main.command()
@click.argument("version", type=click.UUID)
@click.option("--out", type=_folder, required=True, help="The folder to write to.")
@click.option("--fact", "facts", multiple=True, metavar="KEY", help="Include a fact's proof.")
@click.option("--all-facts", is_flag=True, help="Include the proofs of all facts.")
@_tenant
def fetch(version: UUID, out: Path, facts: tuple[str, ...], all_facts: bool, tenant: str) -> None:
    """Write a passport's files: passport.json, receipt.json, qr.png and label.pdf."""

    async def read(passport: Passport) -> tuple[Sealed, bytes]:
        sealed = await passport.with_proofs(tenant, version, None if all_facts else facts)
        return sealed, await passport.label(tenant, version)

    sealed, label = _run(read)
    try:
        out.mkdir(parents=True, exist_ok=True)
        write_files(out, sealed)
        (out / LABEL).write_bytes(label)
    except OSError as error:
        raise click.ClickException(f"can't write to {out}: {error.strerror}") from None
    _tell({"passport_version_id": version, "folder": str(out)})


@main.command("list")
@click.argument("what", type=click.Choice(["snapshots", "rules", "versions", "jobs"]))
@click.option("--limit", type=click.IntRange(1, PAGE_ROWS_MAX), default=50, show_default=True)
@click.option("--after", type=click.UUID, help="The last ID of the page before.")
@_tenant
def list_rows(what: str, limit: int, after: UUID | None, tenant: str) -> None:
    """List snapshots, rules, versions or jobs, newest first."""

    async def read(passport: Passport) -> list[Any]:
        rows: list[Any] = await getattr(passport.queries, what)(tenant, limit=limit, after=after)
        return rows

    for row in _run(read):
        _tell(row)


@main.command()
def keys() -> None:
    """Show the public keys, for those who verify passports."""
    try:
        known = keys_from_environment().public_keys()
    except PassportError as error:
        raise click.ClickException(f"{error.code}: {error}") from None
    for name, key in known.items():
        click.echo(f"{name}={b64encode(key).decode()}")


@main.command("verify")
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--trusted-key",
    "trusted",
    multiple=True,
    required=True,
    metavar="[ID=]KEY",
    help="A public key that you trust, in base64. Without an ID, it stands for the passport's key.",
)
def verify_files(folder: Path, trusted: tuple[str, ...]) -> None:
    """Verify a passport's files offline. The exit code is 0 only if everything in them holds."""
    try:
        sealed = read_files(folder)
    except PassportError as error:
        raise click.ClickException(f"the files can't be read: {error}") from None
    found = verify(sealed, _trusted_keys(trusted, sealed.key_id))
    for part in found.held:
        click.echo(f"valid        {part}")
    for part in found.unchecked:
        click.echo(f"not checked  {part}")
    for part in found.problems:
        click.echo(f"NOT VALID    {part}")
    unread = [part for part in found.unchecked if not part.endswith(": not included")]
    if not found.is_valid or unread:
        click.echo("The passport is not valid." if found.problems else "A part can't be checked.")
        raise SystemExit(FAILED_CODE)
    receipt = read_receipt(sealed.receipt)
    click.echo(
        f"Passport {receipt.passport_id}, version {receipt.passport_version_id}, is valid:"
        f" {len(sealed.proofs)} of its {receipt.facts} facts are proved."
    )


def _trusted_keys(given: tuple[str, ...], key_id: str) -> Mapping[str, bytes]:
    known = {}
    for text in given:
        key = _key(text)
        name, _, rest = text.partition("=")
        if key is None:
            key = _key(rest)
        else:
            name = key_id
        if key is None or not name:
            raise click.BadParameter(
                f"a public key is {KEY_BYTES} bytes in base64, after an optional ID and ="
            )
        known[name] = key
    return known


def _key(text: str) -> bytes | None:
    try:
        key = b64decode(text, validate=True)
    except ValueError:
        return None
    return key if len(key) == KEY_BYTES else None
