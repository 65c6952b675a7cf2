"""The command `holdfast-passport`, through the real program and its exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from base64 import b64encode
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from msgspec.structs import replace

from holdfast_systems.passport.command import main
from holdfast_systems.passport.files import PAYLOAD, PICTURE, RECEIPT, write_files
from holdfast_systems.passport.qr import draw
from tests.promises.stage import both_stores
from tests.support.command import run_command
from tests.support.forks import ROOT
from tests.systems.passport.samples import DOCUMENT, ORDER, SOURCE, TENANT, keys_text, sample_keys
from tests.systems.passport.test_verifier import PASSPORT

pytestmark = pytest.mark.heavy

KEY = b64encode(sample_keys().public_keys()["key-1"]).decode()


class Program:
    def __init__(self, url: str, folder: Path) -> None:
        self.folder = folder
        self.variables = {
            "HOLDFAST_DATABASE_URL": url,
            "BPC_SIGNING_KEYS": keys_text("key-1"),
            "PYTHONPATH": str(ROOT / "src"),
        }

    def run(self, *words: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "holdfast_systems.passport", *map(str, words)],
            cwd=self.folder,
            env=self.variables,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def lines(self, *words: object) -> list[dict[str, Any]]:
        done = self.run(*words)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    def work(self) -> None:
        words = ("worker", "holdfast_systems.passport.app:hf", "--until-empty")
        done = run_command(*words, folder=self.folder, environment=self.variables)
        assert done.returncode == 0, done.stderr


@both_stores
def test_a_passport_from_its_upload_to_its_verification(store_url: str, tmp_path: Path) -> None:
    program = Program(store_url, tmp_path)
    migrated = run_command("migrate", "holdfast_systems.passport.app:hf", folder=tmp_path,
                           environment=program.variables)  # fmt: skip
    assert migrated.returncode == 0, migrated.stderr
    (tmp_path / "bom.csv").write_bytes(DOCUMENT)
    (tmp_path / "rules.json").write_bytes(SOURCE)
    own = ("--tenant", TENANT)
    snapshot = program.lines("open", *own)[0]["snapshot_id"]
    program.lines("upload", snapshot, "bom.csv", *own)
    early = program.run("seal", snapshot, *own)
    assert (early.returncode, early.stderr.split(":")[1].strip()) == (1, "SNAPSHOT_NOT_READY")
    program.work()
    program.lines("seal", snapshot, *own)
    rules = program.lines("add-rules", "rules.json", *own)[0]["rules_id"]
    program.lines("publish", rules, *own)
    order = ("--passport", ORDER.passport_id, "--snapshot", snapshot, "--rules", rules)
    issued = ("--build", "7", "--issued-at", "2026-11-16T03:00:00+0000")
    version = program.lines("compile", *order, *issued, *own)[0]["passport_version_id"]
    program.work()
    (listed,) = program.lines("list", "versions", *own)
    assert (listed["id"], listed["issued_at"]) == (version, "2026-11-16T03:00:00Z")
    assert program.lines("list", "versions") == []
    assert len(program.lines("list", "jobs", "--limit", 2, *own)) == 2
    program.lines("fetch", version, "--out", "out", "--all-facts", *own)
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        *(PAYLOAD, RECEIPT, PICTURE, "label.pdf")
    }
    keys = program.run("keys").stdout.strip()
    assert keys == f"key-1={KEY}"
    verified = program.run("verify", "out", "--trusted-key", keys)
    assert verified.returncode == 0, verified.stdout
    assert "3 of its 3 facts are proved" in verified.stdout
    program.lines("sign", version, *own)


def verify_files(folder: Path, *keys: str) -> Result:
    words = [word for key in keys for word in ("--trusted-key", key)]
    return CliRunner().invoke(main, ["verify", str(folder), *words])


@pytest.mark.parametrize("key", [KEY, f"key-1={KEY}"])
def test_every_part_that_holds_is_named(key: str, tmp_path: Path) -> None:
    write_files(tmp_path, PASSPORT)
    done = verify_files(tmp_path, key)
    assert done.exit_code == 0, done.output
    parts = ["receipt", "signature", "payload", "fact CELL-1", "QR text", "QR picture"]
    assert [line.split(maxsplit=1)[1] for line in done.output.splitlines()[:-1]] == parts


def change_receipt(name: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        file = json.loads((folder / RECEIPT).read_bytes())
        old = file["receipt"][name]
        file["receipt"][name] = old + 1 if isinstance(old, int) else old[::-1]
        (folder / RECEIPT).write_text(json.dumps(file))

    return change


def draw_another_code(folder: Path) -> None:
    (folder / PICTURE).write_bytes(draw("BPC1|another"))


def change_the_payload(folder: Path) -> None:
    content = (folder / PAYLOAD).read_bytes()
    (folder / PAYLOAD).write_bytes(content.replace(b"198.85", b"198.84"))


RECEIPT_FIELDS = [*json.loads(PASSPORT.receipt)]


@pytest.mark.parametrize(
    "change",
    [draw_another_code, change_the_payload, *map(change_receipt, RECEIPT_FIELDS)],
    ids=["picture", "payload", *RECEIPT_FIELDS],
)
def test_a_change_anywhere_fails_the_command(
    change: Callable[[Path], None], tmp_path: Path
) -> None:
    assert len(RECEIPT_FIELDS) == 11
    write_files(tmp_path, PASSPORT)
    change(tmp_path)
    done = verify_files(tmp_path, KEY)
    assert done.exit_code == 1, done.output
    assert "is valid" not in done.output


def test_a_proof_of_something_else_fails_the_command(tmp_path: Path) -> None:
    (proof,) = PASSPORT.proofs
    write_files(tmp_path, replace(PASSPORT, proofs=(proof, replace(proof, index=0))))
    done = verify_files(tmp_path, KEY)
    assert done.exit_code == 1
    assert "NOT VALID    fact CELL-1: it is not in this passport" in done.output


def test_only_the_keys_that_the_caller_trusts_count(tmp_path: Path) -> None:
    write_files(tmp_path, PASSPORT)
    stranger = b64encode(bytes(32)).decode()
    for keys in ([stranger], [f"key-2={KEY}"]):
        assert verify_files(tmp_path, *keys).exit_code == 1
    for keys in ([], ["short"], ["=" + KEY], ["key-1="]):
        assert verify_files(tmp_path, *keys).exit_code == 2
    both = verify_files(tmp_path, f"key-2={stranger}", f"key-1={KEY}")
    assert both.exit_code == 0


def test_a_picture_that_nothing_can_read_fails_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_files(tmp_path, PASSPORT)
    monkeypatch.setitem(sys.modules, "zxingcpp", None)
    done = verify_files(tmp_path, KEY)
    assert (done.exit_code, "holdfast[qr]" in done.output) == (1, True)
    (tmp_path / PICTURE).unlink()
    assert verify_files(tmp_path, KEY).exit_code == 0


def test_the_project_installs_the_command() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    module, _, name = project["scripts"]["holdfast-passport"].partition(":")
    assert getattr(import_module(module), name) is main
