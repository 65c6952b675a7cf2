"""From a document to an announced passport, each step a job, on both databases."""

from __future__ import annotations

import json
import time
from datetime import timedelta
from functools import partial

import msgspec
import pytest
from msgspec.structs import replace

from holdfast import State
from holdfast_systems.passport import Order, PassportError, verify
from holdfast_systems.passport.errors import RuleTypeError, SigningKeyMissing, SnapshotNotReady
from holdfast_systems.passport.limits import SNAPSHOT_FACTS_MAX
from tests.promises.stage import both_stores
from tests.systems.passport.line import Line, on_sqlite
from tests.systems.passport.samples import DOCUMENT, ORDER, SOURCE, TENANT, sample_keys

pytestmark = pytest.mark.heavy

STEPS = ["COMPILE_PASSPORT", "SIGN_PASSPORT", "GENERATE_QR", "DELIVER_WEBHOOK"]
OTHER_DOCUMENT = b"part,material,mass_kg\nCOVER-1,steel,2.5\nCASE-1,aluminium,18.25\n"


@both_stores
async def test_a_document_becomes_a_passport_that_holds(line: Line) -> None:
    passport = line.passport
    snapshot_id = await passport.open_snapshot(TENANT)
    rules_id = await passport.add_rules(TENANT, SOURCE)
    await passport.publish_rules(TENANT, rules_id)
    order = await line.order(snapshot_id, rules_id)
    added = await passport.add_document(TENANT, snapshot_id, "bom.csv", DOCUMENT, then=order)
    await line.run()
    version_id = order.version_id(TENANT)
    proof = await passport.prove(TENANT, version_id, "CELL-1")
    sealed = replace(await passport.sealed(TENANT, version_id), proofs=(proof,))
    verification = verify(sealed, sample_keys().public_keys())
    assert verification.problems == ()
    parts = ("receipt", "signature", "payload", "fact CELL-1", "QR text", "QR picture")
    assert verification.held == parts
    assert json.loads(sealed.payload)["fields"]["mass_kg"] == "198.85"
    events = await passport.audit(TENANT, version_id)
    assert [event.event_type for event in events] == [
        "PASSPORT_COMPILED",
        "PASSPORT_SIGNED",
        "QR_GENERATED",
        "WEBHOOK_PUBLISHED",
    ]
    jobs = [(await line.jobs(name))[0] for name in STEPS]
    assert [event.job_id for event in events] == [job.id for job in jobs]
    assert [job.priority for job in [added.job, *jobs]] == [2, 1, 1, 2, 3]
    assert {job.state for job in jobs} == {State.SUCCEEDED}
    assert {job.tenant for job in jobs} == {TENANT}
    assert {job.correlation_id for job in jobs} == {str(added.job.id)}


@both_stores
async def test_a_step_that_runs_twice_leaves_what_it_left_once(line: Line) -> None:
    order = await line.prepare()
    tables = ["facts", "fact_documents", "snapshot_facts", "versions", "document_versions"]
    await line.passport.compile(TENANT, order)
    await line.run()
    version = await line.passport.version(TENANT, order.version_id(TENANT))
    rows = {table: await line.count(f"passport_{table}") for table in tables}
    other = Line(line.url, qr_border=0)
    other.keys = sample_keys("key-2", "key-1")
    again = [
        await line.hf.jobs.requeue((await line.jobs(name))[0].id)
        for name in ["PARSE_FACTS", *STEPS]
    ]
    later = replace(order, issued_at=order.issued_at + timedelta(days=1))
    again.append(await line.passport.compile(TENANT, later))
    async with other.hf:
        await other.run()
    assert {(await line.hf.get(job.id)).state for job in again} == {State.SUCCEEDED}
    assert {table: await line.count(f"passport_{table}") for table in tables} == rows
    assert rows["versions"] == 1
    assert rows["facts"] == 3
    assert await line.passport.version(TENANT, version.id) == version
    assert version.key_id == "key-1"
    assert await line.count("webhook_events") == 1
    told = [event.payload for event in await line.passport.audit(TENANT, version.id)]
    hashes = {json.loads(payload).get("payload_hash") for payload in told}
    assert hashes == {version.payload_hash, None}


@both_stores
async def test_the_same_facts_of_two_documents_are_stored_once_and_linked_to_both(
    line: Line,
) -> None:
    snapshot_id = await line.passport.open_snapshot(TENANT)
    jobs = [
        (await line.passport.add_document(TENANT, snapshot_id, name, content)).job
        for name, content in (("a.csv", DOCUMENT), ("b.csv", DOCUMENT))
    ]
    await line.run()
    results = [await line.hf.result(job.id) for job in jobs]
    assert sorted(result["added"] for result in results) == [0, 3]
    assert await line.count("passport_facts") == 3
    assert await line.count("passport_fact_documents") == 6
    assert await line.count("passport_snapshot_facts") == 3


@on_sqlite
async def test_the_last_of_several_documents_seals_and_orders_once(line: Line) -> None:
    passport = line.passport
    snapshot_id = await passport.open_snapshot(TENANT)
    rules_id = await passport.add_rules(TENANT, SOURCE)
    await passport.publish_rules(TENANT, rules_id)
    order = await line.order(snapshot_id, rules_id)
    await passport.add_document(TENANT, snapshot_id, "a.csv", DOCUMENT, then=order)
    other = OTHER_DOCUMENT.replace(b"CASE-1", b"CASE-2")
    await passport.add_document(TENANT, snapshot_id, "b.csv", other)
    await line.run()
    assert len(await line.jobs("PARSE_FACTS")) == 2
    assert len(await line.jobs("COMPILE_PASSPORT")) == 1
    version = await passport.version(TENANT, order.version_id(TENANT))
    assert json.loads(version.receipt)["facts"] == 5


@both_stores
async def test_documents_that_contradict_each_other_are_refused(line: Line) -> None:
    snapshot_id = await line.passport.open_snapshot(TENANT)
    await line.passport.add_document(TENANT, snapshot_id, "a.csv", DOCUMENT)
    await line.run()
    added = await line.passport.add_document(TENANT, snapshot_id, "b.csv", OTHER_DOCUMENT)
    failed = await line.ended(added.job)
    assert (failed.state, failed.error_code) == (State.FAILED, "VALIDATION_ERROR")
    assert "CASE-1" in (failed.error_text or "")
    assert await line.count("passport_facts") == 3
    with pytest.raises(SnapshotNotReady, match="1 documents"):
        await line.passport.seal_snapshot(TENANT, snapshot_id)


@on_sqlite
async def test_what_is_not_ready_ends_a_job_at_once_with_its_code(line: Line) -> None:
    order = await line.prepare(sealed=False)
    early = await line.ended(await line.passport.compile(TENANT, order))
    assert (early.state, early.error_code) == (State.FAILED, "SNAPSHOT_NOT_READY")
    assert early.attempts == 1
    await line.passport.seal_snapshot(TENANT, order.snapshot_id)
    draft_id = await line.passport.add_rules(TENANT, SOURCE.replace(b'"label"', b'"draft"'))
    drafted = replace(order, rules_id=draft_id)
    unpublished = await line.ended(await line.passport.compile(TENANT, drafted))
    assert (unpublished.state, unpublished.error_code) == (State.FAILED, "RULE_PKG_NOT_PUBLISHED")
    assert await line.count("passport_versions") == 0
    await line.hf.jobs.retry(early.id)
    await line.run()
    assert await line.count("passport_versions") == 1


@both_stores
async def test_every_failed_attempt_is_in_the_audit_log_with_what_follows(line: Line) -> None:
    order = await line.prepare()
    line.keys = OSError("no disk")
    await line.passport.compile(TENANT, order)
    await line.run()
    (signing,) = await line.jobs("SIGN_PASSPORT")
    line.keys = SigningKeyMissing("no key")
    await line.hf.jobs.retry(signing.id)
    await line.run()
    assert (await line.hf.get(signing.id)).state is State.FAILED
    compiled, *failed = await line.passport.audit(TENANT, order.version_id(TENANT))
    assert compiled.event_type == "PASSPORT_COMPILED"
    assert [(event.event_type, event.job_id) for event in failed] == [
        ("STEP_FAILED", signing.id)
    ] * 2
    step = {"job": "SIGN_PASSPORT"}
    assert [json.loads(event.payload) for event in failed] == [
        step | {"attempt": 1, "status": "QUEUED", "code": "OSError", "text": "OSError: no disk"},
        step | {"attempt": 2, "status": "FAILED", "code": "SIGNING_KEY_MISSING", "text": "no key"},
    ]


@on_sqlite
async def test_a_missing_key_stops_the_line_until_it_is_there(line: Line) -> None:
    order = await line.prepare()
    line.keys = SigningKeyMissing("there is none")
    await line.passport.compile(TENANT, order)
    await line.run()
    (unsigned,) = await line.jobs("SIGN_PASSPORT")
    assert (unsigned.state, unsigned.error_code) == (State.FAILED, "SIGNING_KEY_MISSING")
    version = await line.passport.version(TENANT, order.version_id(TENANT))
    assert (version.signature, version.qr_png) == (None, None)
    assert await line.jobs("GENERATE_QR") == []
    with pytest.raises(PassportError, match="not signed"):
        await line.passport.sealed(TENANT, version.id)
    line.keys = sample_keys()
    await line.hf.jobs.retry(unsigned.id)
    await line.run()
    sealed = await line.passport.sealed(TENANT, version.id)
    assert verify(sealed, sample_keys().public_keys()).is_valid


@on_sqlite
async def test_rules_of_the_wrong_type_are_not_published(line: Line) -> None:
    source = SOURCE.replace(b"mass_kg > 0", b"mass_kg + 1")
    rules_id = await line.passport.add_rules(TENANT, source)
    with pytest.raises(RuleTypeError) as refused:
        await line.passport.publish_rules(TENANT, rules_id)
    assert refused.value.code == "RULE_TYPE_ERROR"
    order = replace(await line.prepare(), rules_id=rules_id)
    job = await line.ended(await line.passport.compile(TENANT, order))
    assert job.error_code == "RULE_PKG_NOT_PUBLISHED"


@both_stores
async def test_a_tenant_sees_nothing_of_another(line: Line) -> None:
    order = await line.prepare()
    await line.passport.compile(TENANT, order)
    await line.run()
    version_id = order.version_id(TENANT)
    stranger = "another"
    for attempt in (
        line.passport.version(stranger, version_id),
        line.passport.sealed(stranger, version_id),
        line.passport.prove(stranger, version_id, "CELL-1"),
        line.passport.seal_snapshot(stranger, order.snapshot_id),
        line.passport.publish_rules(stranger, order.rules_id),
        line.passport.add_document(stranger, order.snapshot_id, "a.csv", DOCUMENT),
    ):
        with pytest.raises(PassportError, match="no such"):
            await attempt
    assert await line.passport.audit(stranger, version_id) == []
    stolen = await line.ended(await line.passport.compile(stranger, order))
    assert (stolen.state, stolen.error_code) == (State.FAILED, "VALIDATION_ERROR")


@on_sqlite
async def test_two_tenants_with_the_same_document_share_no_row(line: Line) -> None:
    for tenant in (TENANT, "another"):
        order = await line.prepare(tenant)
        await line.passport.compile(tenant, order)
    await line.run()
    assert await line.count("passport_facts") == 6
    assert await line.count("passport_versions") == 2


@both_stores
async def test_the_tenant_default_is_one_like_any_other(line: Line) -> None:
    order = await line.prepare("default")
    ended = await line.ended(await line.passport.compile("default", order))
    assert (ended.state, ended.tenant) == (State.SUCCEEDED, "default")
    assert {job["tenant_id"] for job in await line.rows("passport_jobs")} == {"default"}


@on_sqlite
async def test_an_order_that_is_sent_again_is_the_same_though_its_time_is_another(
    line: Line,
) -> None:
    passport = line.passport
    order = await line.order(await passport.open_snapshot(TENANT), ORDER.rules_id)
    add = partial(passport.add_document, TENANT, order.snapshot_id, "a.csv", DOCUMENT)
    await add(then=order)
    await add(then=replace(order, issued_at=order.issued_at + timedelta(seconds=1)))
    (snapshot,) = await line.rows("passport_snapshots")
    assert msgspec.json.decode(snapshot["ordered"], type=Order) == order
    with pytest.raises(PassportError, match="another passport"):
        await add(then=replace(order, build_id="other"))


@on_sqlite
async def test_an_order_that_could_not_be_filled_is_refused(line: Line) -> None:
    snapshot_id = await line.passport.open_snapshot(TENANT)
    with pytest.raises(PassportError, match="snapshot"):
        await line.passport.add_document(TENANT, snapshot_id, "a.csv", DOCUMENT, then=ORDER)
    unnamed = replace(ORDER, snapshot_id=snapshot_id, build_id="a\0b")
    with pytest.raises(PassportError, match="build id"):
        await line.passport.add_document(TENANT, snapshot_id, "a.csv", DOCUMENT, then=unnamed)
    assert await line.count("passport_document_versions") == 0
    assert await line.jobs("PARSE_FACTS") == []


@on_sqlite
async def test_what_is_no_name_is_refused_for_that_reason(line: Line) -> None:
    for name in ("", "a\0b", "a\nb", "\ud800", "x" * 201):
        for attempt in (
            line.passport.open_snapshot(name),
            line.passport.add_rules(name, SOURCE),
            line.passport.add_document(TENANT, ORDER.snapshot_id, name, DOCUMENT),
        ):
            with pytest.raises(PassportError, match="1 to 200 characters"):
                await attempt


@on_sqlite
async def test_many_facts_do_not_hold_up_the_loop(line: Line) -> None:
    snapshot_id = await line.passport.open_snapshot(TENANT)
    rows = "".join(f"P{number},iron,1\n" for number in range(2000))
    document = f"part,material,mass_kg\n{rows}".encode()
    added = await line.passport.add_document(TENANT, snapshot_id, "many.csv", document)
    before = time.thread_time(), time.process_time()
    assert (await line.ended(added.job)).state is State.SUCCEEDED
    on_loop, in_all = time.thread_time() - before[0], time.process_time() - before[1]
    assert on_loop < in_all / 3


MANY_FACTS = f"""
    WITH RECURSIVE numbers (n) AS (
        SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {SNAPSHOT_FACTS_MAX} - 3
    )
    INSERT INTO passport_snapshot_facts (tenant, snapshot_id, fact_type, fact_key, fact_id)
    SELECT tenant, snapshot_id, fact_type, 'P' || n, fact_id
    FROM passport_snapshot_facts CROSS JOIN numbers WHERE fact_key = 'CELL-1'
"""


@on_sqlite
async def test_a_snapshot_can_have_only_so_many_facts(line: Line) -> None:
    snapshot_id = await line.passport.open_snapshot(TENANT)
    await line.passport.add_document(TENANT, snapshot_id, "a.csv", DOCUMENT)
    await line.run()
    await line.execute(MANY_FACTS)
    assert await line.count("passport_snapshot_facts") == SNAPSHOT_FACTS_MAX
    one_more = b"part,material,mass_kg\nCOVER-1,steel,2.5\n"
    added = await line.passport.add_document(TENANT, snapshot_id, "b.csv", one_more)
    refused = await line.ended(added.job)
    assert (refused.state, refused.error_code) == (State.FAILED, "PAYLOAD_TOO_LARGE")
    assert await line.count("passport_snapshot_facts") == SNAPSHOT_FACTS_MAX


@both_stores
async def test_the_view_tells_of_jobs_in_this_systems_words(line: Line) -> None:
    order = await line.prepare()
    line.keys = OSError("the disk is away")
    await line.passport.compile(TENANT, order)
    await line.run()
    (unsigned,) = await line.jobs("SIGN_PASSPORT")
    jobs = {job["type"]: job for job in await line.rows("passport_jobs")}
    assert list(jobs["SIGN_PASSPORT"]) == [
        "job_id", "tenant_id", "type", "status", "payload", "attempts", "max_attempts", "priority",
        "scheduled_at", "lease_owner", "lease_expires_at", "started_at", "finished_at",
        "last_error",
    ]  # fmt: skip
    assert {name: job["status"] for name, job in jobs.items()} == {
        "PARSE_FACTS": "SUCCEEDED",
        "COMPILE_PASSPORT": "SUCCEEDED",
        "SIGN_PASSPORT": "QUEUED",
        "VERIFY_PASSPORTS": "SUCCEEDED",
        "EXPIRE_UPLOADS": "SUCCEEDED",
    }
    last_error = json.loads(jobs["SIGN_PASSPORT"]["last_error"])
    assert last_error == {"code": "OSError", "text": "OSError: the disk is away"}
    version_id = str(order.version_id(TENANT))
    assert json.loads(jobs["SIGN_PASSPORT"]["payload"]) == {"passport_version_id": version_id}
    for _ in range(4):
        await line.hf.jobs.retry(unsigned.id)
        await line.run()
    jobs = {job["type"]: job for job in await line.rows("passport_jobs")}
    assert (jobs["SIGN_PASSPORT"]["status"], jobs["SIGN_PASSPORT"]["attempts"]) == (
        "DEAD_LETTER",
        5,
    )


CHANGES = [
    "UPDATE passport_document_versions SET name = 'other'",
    "DELETE FROM passport_document_versions",
    "UPDATE passport_fact_documents SET tenant = 'other'",
    "DELETE FROM passport_fact_documents",
    "UPDATE passport_facts SET payload = '{}'",
    "DELETE FROM passport_facts",
    "UPDATE passport_audit_events SET payload = '{}'",
    "DELETE FROM passport_audit_events",
    "UPDATE passport_snapshots SET status = 'OPEN', sealed_at = NULL WHERE status = 'SEALED'",
    "DELETE FROM passport_snapshots WHERE status = 'SEALED'",
    "DELETE FROM passport_snapshot_facts",
    "UPDATE passport_snapshot_documents SET parsed_at = NULL",
    "UPDATE passport_rules SET source = '{}'",
    "DELETE FROM passport_rules",
    "UPDATE passport_versions SET payload = '{}'",
    "UPDATE passport_versions SET issued_at = created_at",
    "UPDATE passport_versions SET created_at = issued_at",
    "UPDATE passport_versions SET key_id = 'other'",
    "UPDATE passport_versions SET signature = NULL, key_id = NULL, signed_at = NULL",
    "UPDATE passport_versions SET public_key = NULL",
    "UPDATE passport_versions SET qr_text = 'other'",
    "DELETE FROM passport_versions",
]


TABLES = [
    *("document_versions", "facts", "fact_documents", "rules", "versions", "audit_events"),
    *("snapshots", "snapshot_documents", "snapshot_facts"),
]


@both_stores
async def test_the_database_itself_keeps_what_must_not_change(line: Line) -> None:
    order = await line.prepare()
    await line.passport.compile(TENANT, order)
    await line.run()
    version = await line.passport.version(TENANT, order.version_id(TENANT))
    other_id = await line.passport.open_snapshot(TENANT)
    moves = [
        f"UPDATE passport_snapshot_{rows} SET snapshot_id = '{other_id}'"
        for rows in ("facts", "documents")
    ]
    is_sqlite = line.url.startswith("sqlite")
    truncations = [] if is_sqlite else [f"TRUNCATE passport_{name} CASCADE" for name in TABLES]
    for change in CHANGES + moves + truncations:
        with pytest.raises(Exception, match=r"never|only appended"):
            await line.execute(change)
    assert await line.passport.version(TENANT, version.id) == version
