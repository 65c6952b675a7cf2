"""Where the secret keys come from, and what doctor says about secrets."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from holdfast import (
    CannotDecrypt,
    Check,
    ConfigurationError,
    Encrypted,
    Holdfast,
    Reencrypted,
    SecretCount,
    Severity,
    UnknownSecretKey,
)
from holdfast.domain.diagnosis.secrets import judge_secrets
from holdfast.domain.encryption import make_keys
from holdfast.operations.secrets import VARIABLE

K1, K2 = make_keys("k1"), make_keys("k2")
POSTGRES = "postgresql://db.example.org/jobs"


def test_keys_are_read_again_when_the_environment_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = Holdfast(POSTGRES).secrets
    monkeypatch.setenv(VARIABLE, K1)
    encrypted = secrets.encrypt(b"text", "row")
    assert (secrets.current, secrets.has_key("k1")) == ("k1", True)
    monkeypatch.setenv(VARIABLE, f"{K2},{K1}")
    assert (secrets.current, secrets.decrypt(encrypted, "row")) == ("k2", b"text")
    monkeypatch.setenv(VARIABLE, K2)
    assert not secrets.has_key("k1")
    with pytest.raises(UnknownSecretKey, match="add it to HOLDFAST_SECRET_KEYS"):
        secrets.decrypt(encrypted, "row")


def test_without_keys_postgres_refuses_to_encrypt_and_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(VARIABLE)
    secrets = Holdfast(POSTGRES).secrets
    with pytest.raises(ConfigurationError, match=r"KEYS is not set; .* holdfast secrets new-key"):
        secrets.encrypt(b"text", "row")
    assert not secrets.has_key("k1")
    with pytest.raises(UnknownSecretKey, match="'k1' is unknown here"):
        secrets.decrypt(Encrypted("k1", bytes(40)), "row")


@pytest.mark.parametrize(
    "given",
    ["", K1.partition(":")[2], "k1:c2hvcnQ=", f"{K1},{K1}"],
    ids=["empty", "nameless", "short", "twice"],
)
def test_bad_keys_are_refused_without_being_repeated(
    given: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, given)
    with pytest.raises(ConfigurationError, match=f"^{VARIABLE} must be name:key") as caught:
        Holdfast(POSTGRES).secrets.encrypt(b"text", "row")
    assert K1.partition(":")[2][:10] not in str(caught.value)


def test_beside_an_sqlite_file_keys_are_made_once_and_for_this_user_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE)
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    encrypted = Holdfast(url).secrets.encrypt(b"text", "row")
    file = tmp_path / "jobs.db.secret-keys"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert Holdfast(url).secrets.decrypt(encrypted, "row") == b"text"
    monkeypatch.setenv(VARIABLE, f"{K1},{file.read_text()}")  # as an operator moves it
    assert Holdfast(POSTGRES).secrets.decrypt(encrypted, "row") == b"text"
    monkeypatch.delenv(VARIABLE)
    file.write_text("damaged")
    with pytest.raises(ConfigurationError, match=r"jobs.db.secret-keys must be name:key"):
        Holdfast(url).secrets.encrypt(b"text", "row")
    with pytest.raises(CannotDecrypt):
        Holdfast(url).secrets.decrypt(encrypted, "row")


def test_a_file_that_nobody_may_make_is_an_error_that_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE)
    with pytest.raises(ConfigurationError, match=f"can't use the secret keys.* or set {VARIABLE}"):
        Holdfast(f"sqlite:///{tmp_path / 'missing' / 'jobs.db'}").secrets.encrypt(b"text", "row")


def test_a_kind_is_declared_once(tmp_path: Path) -> None:
    hf = Holdfast(f"sqlite:///{tmp_path / 'jobs.db'}")
    tables = hf.tables("webhooks", package="holdfast.webhooks")
    hf.secrets.add("webhook_secrets", tables, counts="secrets_by_key")
    with pytest.raises(ConfigurationError, match="'webhook_secrets'"):
        hf.secrets.add("webhook_secrets", tables, counts="secrets_by_key")


async def test_jobs_that_wait_under_a_key_are_counted(
    hf: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    @hf.job(encrypted=True)
    async def charge(card: str) -> None: ...

    @hf.job
    async def greet(name: str) -> None: ...

    await hf.migrate()
    await greet.enqueue('{"$encrypted":')
    for keys in (K1, f"{K2},{K1}", f"{K2},{K1}"):
        monkeypatch.setenv(VARIABLE, keys)
        await charge.enqueue("4000056655665556")
    monkeypatch.setenv(VARIABLE, K2)
    counts = await hf.secrets.status()
    found = [(each.kind, each.key_id, each.count, each.is_known) for each in counts]
    assert found == [("jobs", "k1", 1, False), ("jobs", "k2", 2, True)]
    assert await hf.secrets.reencrypt() == Reencrypted(count=0, left=[])
    await hf.run_due()
    assert [each.key_id for each in await hf.secrets.status()] == ["k1"]


def count(key_id: str | None, **others: bool) -> SecretCount:
    made = {"is_current": False, "is_known": True, **others}
    return SecretCount(kind="webhook_secrets", key_id=key_id, count=3, **made)


@pytest.mark.parametrize(
    ("counts", "severity", "sentence"),
    [
        ([count("k2", is_current=True)], Severity.OK, "3 secrets are encrypted under the current"),
        ([count("k1")], Severity.INFO, "3 secrets are under an old key: k1"),
        ([count("k0", is_known=False)], Severity.WARNING, "under a key that is unknown here: k0"),
        ([count(None)], Severity.WARNING, "3 secrets are in plaintext: webhook_secrets"),
    ],
)
def test_doctor_tells_of_secrets_in_clear_or_out_of_reach(
    counts: list[SecretCount], severity: Severity, sentence: str
) -> None:
    (finding,) = judge_secrets(counts)
    assert (finding.code, finding.severity) == (Check.SECRETS, severity)
    assert sentence in finding.sentence
    assert (finding.command is None) == (severity is Severity.OK)


def test_without_secrets_doctor_says_nothing_about_them() -> None:
    assert list(judge_secrets([])) == []
