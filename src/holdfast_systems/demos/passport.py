"""Passport: a bill of materials becomes a signed passport with a QR code."""

from __future__ import annotations

import asyncio
import json
import shutil
from asyncio.subprocess import DEVNULL, PIPE
from base64 import b64encode
from pathlib import Path
from uuid import UUID, uuid4

import msgspec

from holdfast import Holdfast, Job, JobFailed
from holdfast.webhooks import Webhooks
from holdfast_systems.demos.frame import WAIT_SECONDS_MAX, Settings, Stage, Step, until
from holdfast_systems.demos.processes import Service
from holdfast_systems.demos.receiver import read_requests, set_answers
from holdfast_systems.passport import (
    BPC,
    Order,
    Passport,
    PassportError,
    SigningKeys,
    keys_from_environment,
    verify,
)
from holdfast_systems.passport.files import (
    LABEL,
    PAYLOAD,
    PICTURE,
    RECEIPT,
    read_files,
    write_files,
)
from holdfast_systems.passport.picture import ReaderMissing, read_codes

# The same in every demo: workers of two demos on one database sign for each other.
KEYS = {"active": "demo-1", "keys": {"demo-1": b64encode(b"demonstration".ljust(32)).decode()}}

BILL_OF_MATERIALS = """\
part,material,mass_kg,quantity,recycled_percent,origin,hazardous
CELL-NMC-52,nickel manganese cobalt,0.865,96,14.5,KR,yes
CASE-AL-01,aluminium,21.400,1,62,DE,no
BUSBAR-CU,copper,0.185,24,38.25,CL,no
BMS-07,electronics,1.12,1,,DE,no
COOLANT-EG,ethylene glycol,3.4,1,0,NL,yes
"""

RULES = {
    "name": "battery label",
    "schema_version": "bom.1",
    "fields": [
        {"name": "mass_kg", "value": "sum(component.mass_kg * component.quantity)"},
        {
            "name": "recycled_percent",
            "value": "round(sum(component.mass_kg * component.quantity"
            " * component.recycled_percent) / mass_kg, 2)",
        },
        {"name": "hazardous", "value": "any(component.hazardous)"},
        {
            "name": "aluminium_kg",
            "value": "sum(component.mass_kg * component.quantity"
            ' where component.material == "aluminium")',
        },
    ],
    "checks": [{"name": "has a mass", "holds": "mass_kg > 0"}],
}
NONSENSE = {**RULES, "name": "nonsense", "fields": [{"name": "x", "value": '1 + "kilogram"'}]}


class Play:
    """The parts of the demo, and what they have produced so far."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        # A new tenant each time: the database may have seen this demo before.
        self.tenant = f"demo-{uuid4()}"
        self.hf = Holdfast(stage.url)
        self.webhooks = Webhooks(
            self.hf, presets=[BPC], https_only=False, allow_private_addresses=True
        )
        self.passport = Passport(self.hf, self.webhooks, read_keys=self.keys)
        self.receiver: Service
        self.order: Order
        self.event_id: UUID

    def keys(self) -> SigningKeys:
        return keys_from_environment(self.stage.settings)

    @property
    def version_id(self) -> UUID:
        return self.order.version_id(self.tenant)


async def prepare(stage: Stage) -> Settings:
    keys_file = stage.folder / "keys.json"
    keys_file.write_text(json.dumps(KEYS))
    return {
        "BPC_JOBS_POLL_INTERVAL_MS": "200",
        "BPC_SIGNING_KEYS_FILE": str(keys_file),
        "BPC_WEBHOOKS_LOCAL": "1",
    }


async def run(stage: Stage) -> None:
    play = Play(stage)
    with stage.step("start a receiver and a worker") as step:
        await _start(play)
        step.says(f"the receiver is at {play.receiver.address}")
    async with play.hf:
        with stage.step("read a bill of materials") as step:
            await _read(play, step)
        with stage.step("publish rules that mix types") as step:
            await _refuse(play, step)
        with stage.step("compile before the snapshot is sealed") as step:
            failed = await _compile_too_early(play, step)
        with stage.step("seal it and retry: compile, sign, draw the QR code") as step:
            await _issue(play, step, failed)
        with stage.step("notify a receiver that is busy at first") as step:
            await _announce(play, step)
        with stage.step("verify the files offline") as step:
            await _verify(play, step)
        with stage.step("read the QR code") as step:
            await _scan(play, step)


async def _start(play: Play) -> None:
    stage = play.stage
    play.receiver = await stage.start("receiver", "holdfast_systems.demos.receiver")
    await play.hf.migrate()
    await stage.serve("holdfast_systems.passport.app:hf", prepare)


async def _read(play: Play, step: Step) -> None:
    passport = play.passport
    snapshot_id = await passport.open_snapshot(play.tenant)
    document = BILL_OF_MATERIALS.encode()
    added = await passport.add_document(play.tenant, snapshot_id, "bill-of-materials.csv", document)
    found = await play.hf.result(added.job.id, WAIT_SECONDS_MAX)
    rules_id = await passport.add_rules(play.tenant, json.dumps(RULES).encode())
    await passport.publish_rules(play.tenant, rules_id)
    play.order = await passport.order(
        passport_id=play.hf.new_id(), snapshot_id=snapshot_id, rules_id=rules_id, build_id="demo"
    )
    step.says(f"{found['facts']} facts")
    step.expects(found["facts"] == 5, "5 facts")


async def _refuse(play: Play, step: Step) -> None:
    rules_id = await play.passport.add_rules(play.tenant, json.dumps(NONSENSE).encode())
    try:
        await play.passport.publish_rules(play.tenant, rules_id)
    except PassportError as error:
        step.says(f"rejected: {error.code}")
        step.expects(error.code == "RULE_TYPE_ERROR", "RULE_TYPE_ERROR")
    else:
        step.expects(False, "rejected rules")


async def _compile_too_early(play: Play, step: Step) -> Job:
    job = await play.passport.compile(play.tenant, play.order)
    try:
        await play.hf.result(job.id, WAIT_SECONDS_MAX)
    except JobFailed as failed:
        step.says(f"{failed.job.state}: {failed.job.error_code}")
        step.expects(failed.job.error_code == "SNAPSHOT_NOT_READY", "SNAPSHOT_NOT_READY")
    else:
        step.expects(False, "a failed job")
    return job


async def _issue(play: Play, step: Step, failed: Job) -> None:
    await _listen(play)
    await play.passport.seal_snapshot(play.tenant, play.order.snapshot_id)
    following: object = (await play.hf.jobs.retry(failed.id)).id
    while following is not None:
        result = await play.hf.result(UUID(str(following)), WAIT_SECONDS_MAX)
        following = result.get("next_job_id")
    play.event_id = UUID(result["event_id"])
    version = await play.passport.version(play.tenant, play.version_id)
    fields = json.loads(version.payload)["fields"]
    step.says(f"{fields['mass_kg']} kg, {fields['recycled_percent']}% recycled")
    step.expects(fields["mass_kg"] == "113.4", "113.4 kg")
    is_signed = version.signature is not None and version.qr_png is not None
    step.expects(is_signed, "a signature and a QR code")


async def _listen(play: Play) -> None:
    """Subscribe an endpoint that answers 503 first."""
    url = f"{play.receiver.address}/hooks/passport"
    subscription = await play.webhooks.subscribe(
        url, event_types=["PASSPORT_SIGNED"], tenant=play.tenant, preset="bpc"
    )
    await set_answers(play.receiver.address, "passport", subscription.secret, [503, 200])


async def _announce(play: Play, step: Step) -> None:
    await until(
        lambda: play.webhooks.sagas(event_id=play.event_id, tenant=play.tenant),
        lambda sagas: [saga.status for saga in sagas] == ["Delivered"],
    )
    requests = await read_requests(play.receiver.address, "passport")
    answers = [request["answered"] for request in requests]
    step.says(", then ".join(str(status) for status in answers))
    step.expects(answers == [503, 200], "503, then 200")
    step.expects(all(request["genuine"] for request in requests), "valid signatures")
    ids = {request["headers"]["x-bpc-delivery-id"] for request in requests}
    step.expects(len(ids) == 1, "one delivery id for both attempts")


async def _verify(play: Play, step: Step) -> None:
    out, passport = play.stage.out, play.passport
    proof = await passport.prove(play.tenant, play.version_id, "CASE-AL-01")
    sealed = msgspec.structs.replace(
        await passport.sealed(play.tenant, play.version_id), proofs=(proof,)
    )
    trusted = play.keys().public_keys()
    write_files(out, sealed)
    play.stage.made(out / PAYLOAD, "the passport in canonical JSON")
    play.stage.made(out / RECEIPT, "its receipt and signature, and the proof of one fact")
    play.stage.made(out / PICTURE, "its QR code")
    (out / LABEL).write_bytes(await passport.label(play.tenant, play.version_id))
    play.stage.made(out / LABEL, "its label, to print")
    verification = verify(read_files(out), trusted)
    valid = f"valid: {', '.join(verification.held)}"
    step.says("\n".join([valid, *(f"not checked: {part}" for part in verification.unchecked)]))
    step.expects(verification.is_valid, "; ".join(verification.problems))
    forged = msgspec.structs.replace(sealed, payload=sealed.payload.replace(b'"113.4"', b'"113.3"'))
    step.expects(not verify(forged, trusted).is_valid, "a forged mass is detected")


async def _scan(play: Play, step: Step) -> None:
    version = await play.passport.version(play.tenant, play.version_id)
    picture = play.stage.out / PICTURE
    try:
        reader, text = await _read_code(picture)
    except ReaderMissing as missing:
        step.says(f"not read, because no reader is installed: {missing}")
        return
    step.says(f"{reader} reads {text[:40]}...")
    step.expects(text == version.qr_text, "the text stored with the version")


async def _read_code(picture: Path) -> tuple[str, str]:
    """Read the code with a program that shares nothing with what drew it."""
    if zbar := shutil.which("zbarimg"):
        process = await asyncio.create_subprocess_exec(
            zbar, "--raw", "-q", str(picture), stdout=PIPE, stderr=DEVNULL
        )
        output, _ = await process.communicate()
        return "zbar", output.decode().strip()
    codes = await asyncio.to_thread(lambda: read_codes(picture.read_bytes()))
    return "zxing", b" ".join(codes).decode()
