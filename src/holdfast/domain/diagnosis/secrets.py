"""Secrets that are in plaintext, or that this process can't read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from holdfast.domain.diagnosis.findings import Check, Finding, fine, info, warning
from holdfast.domain.diagnosis.words import counted, listed
from holdfast.domain.encryption import SecretCount

_REENCRYPT = "holdfast secrets reencrypt --app MODULE:NAME"


def judge_secrets(counts: Sequence[SecretCount]) -> Iterator[Finding]:
    clear = [each for each in counts if each.key_id is None]
    unknown = [each for each in counts if not each.is_known]
    old = [each for each in counts if each.key_id and each.is_known and not each.is_current]
    if clear:
        yield warning(
            Check.SECRETS,
            f"{_counted(clear)} in plaintext: {listed(_kinds(clear))}. A copy of the database"
            " reveals them",
            advice="encrypt them, then rotate them, because older backups still contain them",
            command=_REENCRYPT,
            count=_total(clear),
        )
    if unknown:
        keys = sorted({str(each.key_id) for each in unknown})
        yield warning(
            Check.SECRETS,
            f"{_counted(unknown)} under a key that is unknown here: {listed(keys)}. A worker"
            " without the key hands their jobs back",
            advice="add the key to HOLDFAST_SECRET_KEYS for every process; to see what is under it",
            command="holdfast secrets status --app MODULE:NAME",
            count=_total(unknown),
            keys=keys,
        )
    if old:
        keys = sorted({str(each.key_id) for each in old})
        yield info(
            Check.SECRETS,
            f"{_counted(old)} under an old key: {listed(keys)}",
            advice="before you remove that key, re-encrypt them",
            command=_REENCRYPT,
            count=_total(old),
            keys=keys,
        )
    if counts and not (clear or unknown or old):
        yield fine(Check.SECRETS, f"{_counted(counts)} encrypted under the current key")


def _total(counts: Sequence[SecretCount]) -> int:
    return sum(each.count for each in counts)


def _counted(counts: Sequence[SecretCount]) -> str:
    total = _total(counts)
    return f"{counted(total, 'secret')} {'is' if total == 1 else 'are'}"


def _kinds(counts: Sequence[SecretCount]) -> list[str]:
    return sorted({each.kind for each in counts})
