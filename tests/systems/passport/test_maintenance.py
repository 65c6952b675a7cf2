"""The maintenance jobs: they go first, find what was changed, and remove what was abandoned."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace

from holdfast_systems.passport.limits import OPEN_SECONDS_MAX, VERIFY_VERSIONS_MAX
from tests.promises.stage import both_stores
from tests.systems.passport.line import Line, on_sqlite
from tests.systems.passport.samples import DOCUMENT, SOURCE, TENANT

pytestmark = pytest.mark.heavy

# What somebody could change who may switch off the triggers, and what is found then.
CHANGES = {
    "UPDATE passport_versions SET payload = replace(payload, '198.85', '198.84')": "payload",
    "UPDATE passport_versions SET receipt = replace(receipt, 'build-7', 'build-8')": "receipt",
    "UPDATE passport_versions SET build_id = 'build-8'": "build_id",
    "UPDATE passport_versions SET receipt_hash = payload_hash": "receipt_hash",
    "UPDATE passport_versions SET signature = {zeros}": "signature",
    "UPDATE passport_versions SET qr_text = replace(qr_text, 'BPC1', 'BPC2')": "QR text",
    "UPDATE passport_facts SET payload = replace(payload, '1.85', '1.84')": "facts",
    "DELETE FROM passport_snapshot_facts WHERE fact_key = 'CASE-1'": "facts",
    "UPDATE passport_rules SET source = replace(source, 'label', 'other')": "rules",
}


async def run_again(line: Line, name: str) -> Any:
    """Run a maintenance job before the day is over."""
    (*_, first) = await line.jobs(name)
    job = await line.hf.jobs.requeue(first.id, again=True)
    await line.run()
    return await line.hf.result(job.id)


async def tamper(line: Line, change: str) -> None:
    """Change a row although triggers forbid it."""
    table = next(word for word in change.split() if word.startswith("passport_"))
    async with line.hf.transaction() as connection:
        if line.url.startswith("sqlite"):
            triggers = await connection.fetch(
                f"SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = '{table}'"
            )
            for trigger in triggers:
                await connection.execute(f"DROP TRIGGER {trigger['name']}")
            await connection.execute(change.format(zeros="zeroblob(64)"))
        else:
            schema = change.replace(table, f"holdfast.{table}", 1)
            zeros = r"decode(repeat('00', 64), 'hex')"
            await connection.execute(f"ALTER TABLE holdfast.{table} DISABLE TRIGGER USER")
            await connection.execute(schema.format(zeros=zeros))


@both_stores
async def test_each_is_enqueued_once_a_day_before_all_other_work(line: Line) -> None:
    await line.issue()
    await line.run()
    for name in ("VERIFY_PASSPORTS", "EXPIRE_UPLOADS"):
        (job,) = await line.jobs(name)
        assert (job.priority, job.state) == (0, "succeeded")
    others = [job for job in await line.passport.queries.jobs(TENANT) if job.priority == 0]
    assert others == []


@both_stores
async def test_passports_as_they_were_issued_hold(line: Line) -> None:
    await line.issue()
    assert await run_again(line, "VERIFY_PASSPORTS") == {"verified": 1, "tampered": []}


@both_stores
@pytest.mark.parametrize(("change", "part"), CHANGES.items(), ids=CHANGES.values())
async def test_what_was_changed_behind_the_triggers_is_found(
    line: Line, change: str, part: str
) -> None:
    version_id = await line.issue()
    await tamper(line, change)
    result = await run_again(line, "VERIFY_PASSPORTS")
    assert result == {"verified": 1, "tampered": [str(version_id)]}
    *_, event = await line.passport.audit(TENANT, version_id)
    assert event.event_type == "TAMPERING_FOUND"
    assert part in " ".join(json.loads(event.payload)["problems"])


@on_sqlite
async def test_without_keys_all_but_the_signature_is_verified(line: Line) -> None:
    await line.issue()
    await tamper(line, "UPDATE passport_versions SET signature = {zeros}")
    line.keys = OSError("no keys here")
    assert (await run_again(line, "VERIFY_PASSPORTS"))["tampered"] == []


@on_sqlite
async def test_many_passports_are_verified_page_by_page(line: Line) -> None:
    order = await line.prepare()
    for number in range(VERIFY_VERSIONS_MAX + 1):
        await line.passport.compile(TENANT, replace(order, build_id=f"build-{number}"))
    await line.run()
    first = await run_again(line, "VERIFY_PASSPORTS")
    assert first["verified"] == VERIFY_VERSIONS_MAX
    following = await line.hf.result(UUID(first["next_job_id"]))
    assert following == {"verified": 1, "tampered": []}


@both_stores
async def test_snapshots_that_nobody_sealed_are_removed_with_their_uploads(line: Line) -> None:
    passport = line.passport
    sealed = (await line.prepare()).snapshot_id
    abandoned, rejected, recent = [await passport.open_snapshot(TENANT) for _ in range(3)]
    await passport.add_document(TENANT, abandoned, "other.csv", DOCUMENT)
    await passport.add_document(TENANT, rejected, "bad.csv", b"nonsense")
    await passport.add_document(TENANT, recent, "bad.csv", b"nonsense, too")
    await line.run()
    age = f"-{OPEN_SECONDS_MAX + 60} seconds"
    past = (
        f"strftime('%Y-%m-%dT%H:%M:%f000Z', 'now', '{age}')"
        if line.url.startswith("sqlite")
        else f"now() + interval '{age}'"
    )
    for snapshot_id in (abandoned, rejected):
        await line.execute(
            f"UPDATE passport_snapshots SET created_at = {past} WHERE id = '{snapshot_id}'"
        )
    assert await run_again(line, "EXPIRE_UPLOADS") == {"expired": 2}
    left = {row["id"] for row in await line.rows("passport_snapshots")}
    assert {str(each) for each in left} == {str(sealed), str(recent)}
    names = {row["name"] for row in await line.rows("passport_document_versions")}
    # Facts came from other.csv, so it stays.
    assert names == {"bom.csv", "other.csv", "bad.csv"}
    assert await line.count("passport_document_versions") == 3
    (_, *rest) = await passport.audit(TENANT, abandoned)
    assert [event.event_type for event in rest] == ["SNAPSHOT_EXPIRED"]
    assert await run_again(line, "EXPIRE_UPLOADS") == {"expired": 0}


@both_stores
async def test_a_rule_package_keeps_a_record_of_who_did_what(line: Line) -> None:
    passport = line.passport
    rules_id = await passport.add_rules(TENANT, SOURCE, by="ann")
    await passport.publish_rules(TENANT, rules_id, by="bob")
    await passport.publish_rules(TENANT, rules_id, by="eve")
    wrong_id = await passport.add_rules(TENANT, SOURCE.replace(b"mass_kg > 0", b"mass_kg + 1"))
    with pytest.raises(Exception, match="a check must be a boolean"):
        await passport.publish_rules(TENANT, wrong_id, by="bob")
    events = await passport.audit(TENANT, rules_id)
    told = [(event.event_type, json.loads(event.payload)["by"]) for event in events]
    assert told == [("RULES_ADDED", "ann"), ("RULES_PUBLISHED", "bob")]
    *_, rejected = await passport.audit(TENANT, wrong_id)
    assert rejected.event_type == "RULES_REJECTED"
    assert json.loads(rejected.payload)["code"] == "RULE_TYPE_ERROR"
