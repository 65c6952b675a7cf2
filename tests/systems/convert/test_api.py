"""The routes: submit, list, get, download and cancel, for one tenant, with keys and scopes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest

from holdfast_systems.convert.limits import (
    FIELD_BYTES_MAX,
    FORM_BYTES_MAX,
    FORM_FIELDS_MAX,
    PAGE_CONVERSIONS_MAX,
    PDF_BYTES_MAX,
)
from tests.promises.stage import both_stores
from tests.support.api import served
from tests.support.processes import wait_until
from tests.support.running import working
from tests.systems.convert.bench import Bench
from tests.systems.convert.scripted import XML, ScriptedGateway, script

pytestmark = pytest.mark.heavy

on_sqlite = pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
SCOPES = {"all": ["read", "enqueue", "operate"], "reader": ["read"], "writer": ["enqueue"]}


@dataclass
class Client:
    bench: Bench
    http: httpx.AsyncClient
    keys: dict[str, str]

    async def call(
        self, method: str, path: str = "", *, key: str = "all", **options: Any
    ) -> httpx.Response:
        headers = {"authorization": f"Bearer {self.keys[key]}", **options.pop("headers", {})}
        return await self.http.request(method, f"/conversions{path}", headers=headers, **options)

    async def get(self, path: str = "", status: int = 200, **options: Any) -> Any:
        answer = await self.call("GET", path, **options)
        assert answer.status_code == status, answer.text
        return answer.json()

    async def submit(
        self, pdf: bytes = script(), mapping: str = "text", status: int = 202, **options: Any
    ) -> Any:
        options["files"] = {"file": ("invoice.pdf", pdf)}
        answer = await self.call("POST", data={"mapping": mapping}, **options)
        assert answer.status_code == status, answer.text
        return answer.json()

    @property
    def uploads(self) -> list[str]:
        folder = self.bench.settings.uploads_dir
        return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


@pytest.fixture
async def client(bench: Bench) -> AsyncIterator[Client]:
    async with served(bench.hf) as http:
        keys = {
            name: (await bench.hf.keys.create(name, scopes=scopes, tenant="acme")).key
            for name, scopes in SCOPES.items()
        }
        other = await bench.hf.keys.create("other", scopes=SCOPES["all"], tenant="rival")
        yield Client(bench, http, {**keys, "stranger": other.key})


@both_stores
async def test_a_pdf_is_submitted_converted_and_downloaded_over_http(client: Client) -> None:
    submitted = await client.submit(mapping="invoice")
    assert (submitted["status"], submitted["original_filename"]) == ("queued", "invoice.pdf")
    path = f"/{submitted['id']}"
    assert client.uploads == [f"{submitted['id']}.pdf"]
    refused = await client.get(f"{path}/result", 409)
    assert (refused["code"], refused["job_id"]) == ("wrong-state", submitted["id"])
    await client.bench.hf.run_due()
    complete = await client.get(path)
    assert (complete["status"], complete["attempts"]) == ("complete", 1)
    assert complete["result_path"] == f"/conversions{path}/result"
    answer = await client.call("GET", f"{path}/result")
    assert (answer.status_code, answer.text) == (200, XML.format(number=1))
    assert answer.headers["content-type"] == "application/xml"
    assert answer.headers["content-disposition"] == f'attachment; filename="{submitted["id"]}.xml"'
    job = await client.bench.hf.for_tenant("acme").jobs.get(UUID(submitted["id"]))
    assert (job.tenant, job.correlation_id) == ("acme", submitted["id"])


@both_stores
async def test_a_failed_conversion_shows_its_code_and_one_line(client: Client) -> None:
    submitted = await client.submit(script({"status": 400, "body": "no\nPDF"}))
    await client.bench.hf.run_due()
    failed = await client.get(f"/{submitted['id']}")
    assert (failed["status"], failed["error_code"]) == ("failed", "GW_4XX")
    assert failed["error_message"] == "the gateway answered 400: no PDF"
    assert submitted["updated_at"] < failed["failed_at"] <= failed["updated_at"]
    refused = await client.get(f"/{submitted['id']}/result", 409)
    assert refused["reason"] == "GW_4XX"


@both_stores
async def test_the_list_has_pages_with_the_newest_first(client: Client) -> None:
    made = [(await client.submit())["id"] for _ in range(3)]
    await client.submit(key="stranger")
    first = (await client.get("?limit=2"))["conversions"]
    assert [each["id"] for each in first] == [made[2], made[1]]
    rest = (await client.get(f"?after={made[1]}"))["conversions"]
    assert [each["id"] for each in rest] == [made[0]]
    assert await client.get(f"?after={made[0]}") == {"conversions": []}
    for limit in (0, PAGE_CONVERSIONS_MAX + 1):
        assert (await client.get(f"?limit={limit}", 400))["code"] == "bad-request"


@both_stores
async def test_a_conversion_can_be_canceled_while_it_waits_or_runs(
    client: Client, gateway: ScriptedGateway
) -> None:
    waiting = await client.submit()
    answer = await client.call("POST", f"/{waiting['id']}/cancel")
    assert (answer.status_code, answer.json()["status"]) == (200, "canceled")
    assert answer.json()["updated_at"] > waiting["updated_at"]
    again = await client.call("POST", f"/{waiting['id']}/cancel")
    assert (again.status_code, again.json()["code"]) == (409, "wrong-state")
    gateway.gate.clear()
    running = await client.submit()
    async with working(client.bench.hf):
        await gateway.arrivals()
        answer = await client.call("POST", f"/{running['id']}/cancel")
        assert answer.json()["status"] == "canceled"
        gateway.gate.set()
    await wait_until(lambda: client.bench.results == {}, "without a result")
    assert (await client.get(f"/{running['id']}"))["status"] == "canceled"


@both_stores
async def test_another_tenant_finds_nothing(client: Client) -> None:
    submitted = await client.submit()
    await client.bench.hf.run_due()
    for path in ("", "/result"):
        refused = await client.get(f"/{submitted['id']}{path}", 404, key="stranger")
        assert refused["code"] == "job-not-found"
        unknown = await client.get(f"/{uuid4()}{path}", 404)
        assert unknown["code"] == "job-not-found"
    canceled = await client.call("POST", f"/{submitted['id']}/cancel", key="stranger")
    assert canceled.status_code == 404
    assert await client.get(key="stranger") == {"conversions": []}


@on_sqlite
async def test_every_route_needs_a_key_with_its_scope(client: Client) -> None:
    paths = (await client.http.get("/openapi.json")).json()["paths"]
    routes = [
        (method.upper(), path.removeprefix("/conversions").replace("{job_id}", str(UUID(int=0))))
        for path, methods in paths.items()
        if path.startswith("/conversions")
        for method in methods
        if method in ("get", "post")
    ]
    assert len(routes) == 5
    for method, path in routes:
        key = "writer" if method == "GET" else "reader"
        assert (await client.call(method, path, key=key)).status_code == 403, (method, path)
        nobody = await client.http.request(method, f"/conversions{path}")
        assert nobody.status_code == 401, (method, path)


@on_sqlite
async def test_what_is_rejected_has_a_code_and_leaves_nothing(client: Client) -> None:
    refusals: list[tuple[bytes, str, int, str]] = [
        (script(), "x/../y", 422, "UNKNOWN_MAPPING"),
        (b"", "text", 422, "PDF_SIZE"),
        (b"<html>no PDF</html>", "text", 422, "NOT_A_PDF"),
        (b"GIF89a" + bytes(2000), "text", 422, "NOT_A_PDF"),
        (b"%PDF-1.7" + bytes(PDF_BYTES_MAX), "text", 413, "PDF_SIZE"),
    ]
    for pdf, mapping, status, reason in refusals:
        assert (await client.submit(pdf, mapping, status))["reason"] == reason
    assert client.uploads == []
    assert await client.get() == {"conversions": []}
    assert (await client.bench.hf.jobs.list()).jobs == []


@on_sqlite
async def test_a_body_without_a_length_is_cut_off_at_the_limit(client: Client) -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        yield FORM_START
        while True:
            sent += 1
            yield bytes(1024 * 1024)

    # The connection is closed while the client still writes, which may hide the answer from it.
    with suppress(httpx.TransportError):
        answer = await client.call("POST", content=endless(), headers=FORM_TYPE)
        assert (answer.status_code, answer.json()["reason"]) == (413, "PDF_SIZE")
    assert sent * 1024 * 1024 < 2 * FORM_BYTES_MAX
    assert client.uploads == []


@on_sqlite
async def test_a_declared_length_beyond_the_limit_is_rejected_before_the_body(
    client: Client,
) -> None:
    url = client.http.base_url
    reader, writer = await asyncio.open_connection(url.host, url.port)
    try:
        writer.write(
            f"POST /conversions HTTP/1.1\r\nhost: {url.host}\r\n"
            f"authorization: Bearer {client.keys['all']}\r\n"
            f"content-type: {FORM_TYPE['content-type']}\r\n"
            f"content-length: {FORM_BYTES_MAX + 1}\r\n\r\n".encode()
        )
        answer = (await reader.read()).decode()  # until the server closes the connection
    finally:
        writer.close()
        await writer.wait_closed()
    assert answer.startswith("HTTP/1.1 413")
    assert '"reason":"PDF_SIZE"' in answer
    assert client.uploads == []


FORM_TYPE = {"content-type": "multipart/form-data; boundary=b"}
FIELD = b'--b\r\nContent-Disposition: form-data; name="%s"\r\n\r\n%s\r\n'
FORM_START = FIELD % (b"mapping", b"text") + (
    b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.pdf"\r\n\r\n%PDF-1.7'
)


@on_sqlite
async def test_a_form_that_is_not_whole_is_a_bad_request(client: Client) -> None:
    pdf, end = FIELD % (b"file", b"%PDF-1.7"), b"--b--\r\n"
    mapping = FIELD % (b"mapping", b"text")
    bodies = {
        "its last boundary is missing": FORM_START,
        "the field mapping is missing": pdf + end,
        "the field file is missing": mapping + end,
        "more than one file": mapping + pdf + pdf + end,
        "fields": (FIELD % (b"other", b"1")) * (FORM_FIELDS_MAX + 1) + end,
        "is longer than": FIELD % (b"mapping", b"x" * (FIELD_BYTES_MAX + 1)) + pdf + end,
        "can't be read": b"no form",
        "can't be read:": b"--b\r\n" + b"x" * (FIELD_BYTES_MAX + 10) + b": y\r\n\r\n" + end,
    }
    for text, body in bodies.items():
        answer = await client.call("POST", content=body, headers=FORM_TYPE)
        assert (answer.status_code, answer.json()["code"]) == (400, "bad-request"), text
        assert text in answer.json()["detail"]
    for kind in ("application/json", "multipart/form-data", "application/pdf"):
        answer = await client.call("POST", content=b"{}", headers={"content-type": kind})
        assert answer.status_code == 400
    assert client.uploads == []


@on_sqlite
async def test_the_file_may_come_before_its_mapping_in_any_chunks(client: Client) -> None:
    body = FIELD % (b"file", script()) + FIELD % (b"mapping", b"layout") + b"--b--\r\n"

    async def bytewise() -> AsyncIterator[bytes]:
        for index in range(len(body)):
            yield body[index : index + 1]

    answer = await client.call("POST", content=bytewise(), headers=FORM_TYPE)
    assert (answer.status_code, answer.json()["mapping"]) == (202, "layout")
    (name,) = client.uploads
    assert (client.bench.settings.uploads_dir / name).read_bytes() == script()


@on_sqlite
async def test_an_upload_that_is_cut_off_leaves_nothing(client: Client) -> None:
    begun = asyncio.Event()

    async def stalling() -> AsyncIterator[bytes]:
        yield FORM_START + bytes(4096)
        begun.set()
        await asyncio.Event().wait()

    sending = asyncio.create_task(client.call("POST", content=stalling(), headers=FORM_TYPE))
    await begun.wait()
    await wait_until(lambda: bool(client.uploads), "a temporary file")
    assert client.uploads[0].endswith(".tmp")
    sending.cancel()
    await wait_until(lambda: client.uploads == [], "removed")


@both_stores
async def test_a_repeated_request_is_one_conversion(client: Client) -> None:
    headers = {"idempotency-key": "upload-1"}
    first = await client.submit(headers=headers)
    again = await client.submit(headers=headers)
    assert again["id"] == first["id"]
    other = await client.submit(script({"status": 400}), status=422, headers=headers)
    assert other["code"] == "idempotency-conflict"
    assert client.uploads == [f"{first['id']}.pdf"]
    assert len((await client.get())["conversions"]) == 1


@both_stores
async def test_a_result_that_this_server_cannot_find_is_404(client: Client) -> None:
    submitted = await client.submit()
    await client.bench.hf.run_due()
    (path,) = client.bench.settings.results_dir.iterdir()
    path.unlink()
    refused = await client.get(f"/{submitted['id']}/result", 404)
    assert (refused["code"], refused["reason"]) == ("not-found", "IO_ERROR")
    assert str(Path(path).parent) not in refused["detail"]
