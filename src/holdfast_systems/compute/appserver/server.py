"""POST /gh/{definition}:{version}/solve: inputs in, outputs with a score and a picture out."""

from __future__ import annotations

import asyncio
import logging
import os
from typing import Any

import msgspec
from fastapi import FastAPI, HTTPException, Request
from starlette.responses import JSONResponse

from holdfast_systems.compute.appserver.bodies import TooLarge, read_body
from holdfast_systems.compute.appserver.drawing import draw
from holdfast_systems.compute.appserver.faults import Faults, read_faults
from holdfast_systems.compute.appserver.fit import NoFit, Placement, Site, clearances, fit
from holdfast_systems.compute.contract import ContractBroken, ContractUnknown, load_contracts
from holdfast_systems.compute.limits import INPUTS_BYTES_MAX
from holdfast_systems.compute.solver import ATTEMPT_HEADER, CORRELATION_HEADER, JOB_HEADER
from holdfast_systems.compute.status_lines import NO_JOB, StatusLines

_log = logging.getLogger(__name__)


def make_app(faults: Faults | None = None) -> FastAPI:
    """Make the application. Without `faults`, the environment may set some."""
    faults = faults or read_faults(os.environ)
    app = FastAPI(title="AppServer")
    contracts = load_contracts()
    app.state.solved = 0

    @app.get("/health")
    async def health() -> dict[str, Any]:
        return {"status": "ok", "solved": app.state.solved}

    @app.post("/gh/{definition}:{version}/solve")
    async def solve(definition: str, version: str, request: Request) -> Any:
        lines = _lines(request, definition, version)
        lines.say("running")
        begun = asyncio.get_running_loop().time()
        try:
            inputs = await _read_inputs(request)
            await faults.apply()
            contract = contracts.find(definition, version)
            filled = contract.inputs.filled(inputs)
            outputs = await asyncio.to_thread(solve_house, filled)
        except ContractUnknown as error:
            return _refuse(lines, HTTPException(404, str(error)))
        except NoFit as error:
            return _refuse(lines, HTTPException(422, str(error)))
        except ContractBroken as error:
            refusal = HTTPException(422, "the inputs violate the contract")
            places = [{"pointer": each.pointer, "detail": each.text} for each in error.flaws]
            return _refuse(lines, refusal, errors=places)
        except HTTPException as error:
            return _refuse(lines, error)
        app.state.solved += 1
        took_ms = round((asyncio.get_running_loop().time() - begun) * 1000, 1)
        lines.say("succeeded", duration_ms=took_ms)
        return {"results": []} if faults.broken_outputs else outputs

    return app


def _lines(request: Request, definition: str, version: str) -> StatusLines:
    """What the worker sends along, for the log."""
    headers = request.headers
    attempt = headers.get(ATTEMPT_HEADER, "")
    return StatusLines(
        _log,
        cid=headers.get(CORRELATION_HEADER, "-"),
        definition=definition,
        version=version,
        job_id=headers.get(JOB_HEADER, NO_JOB),
        attempt=int(attempt[:9]) if attempt.isascii() and attempt.isdigit() else 0,
    )


def _refuse(lines: StatusLines, error: HTTPException, **more: Any) -> JSONResponse:
    text = str(error.detail)
    lines.say("failed", error_code=f"HTTP_{error.status_code}", error_text=text)
    return JSONResponse({"detail": text, **more}, error.status_code)


async def _read_inputs(request: Request) -> dict[str, Any]:
    try:
        return msgspec.json.decode(await read_body(request, INPUTS_BYTES_MAX), type=dict[str, Any])
    except TooLarge as error:
        raise HTTPException(413, str(error)) from None
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, f"the inputs are not a JSON object: {error}") from None


def solve_house(inputs: dict[str, Any]) -> dict[str, Any]:
    site = Site.of(inputs)
    placements = fit(site)
    return {
        "results": [_result(site, placement) for placement in placements],
        "artifacts": [
            {"kind": "svg", "media_type": "image/svg+xml", "data": draw(site, placements)}
        ],
    }


def _result(site: Site, placement: Placement) -> dict[str, Any]:
    street, neighbors = clearances(site, placement.corners)
    return {
        "score": round(placement.score, 2),
        "footprint_m2": round(placement.footprint, 2),
        "floor_area_m2": round(placement.footprint * site.house.storeys, 2),
        # Significant digits: on a huge plot, a fixed number of decimals would give 0.
        "coverage": float(f"{placement.footprint / site.area:.4g}"),
        "width_m": round(placement.width, 2),
        "depth_m": round(placement.depth, 2),
        "angle_degrees": placement.angle_degrees,
        "front_degrees": placement.front_degrees(site),
        "street_m": round(street, 2),
        "neighbors_m": round(neighbors, 2),
        "corners": [[round(x, 4), round(y, 4)] for x, y in placement.corners],
    }
