"""POST /gh/{definition}:{version}/solve: inputs in, outputs with a score and a picture out."""

from __future__ import annotations

import asyncio
import logging
import os
from typing import Any

import msgspec
from fastapi import FastAPI, HTTPException, Request

from holdfast_systems.compute.appserver.bodies import TooLarge, read_body
from holdfast_systems.compute.appserver.drawing import draw
from holdfast_systems.compute.appserver.faults import Faults, read_faults
from holdfast_systems.compute.appserver.fit import NoFit, Placement, Site, clearances, fit
from holdfast_systems.compute.contract import ContractBroken, ContractUnknown, load_contracts
from holdfast_systems.compute.limits import INPUTS_BYTES_MAX
from holdfast_systems.compute.solver import CORRELATION_HEADER

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
        inputs = await _read_inputs(request)
        correlation_id = request.headers.get(CORRELATION_HEADER, "-")
        _log.info("solve cid=%r %r@%r", correlation_id, definition, version)
        await faults.apply()
        try:
            contract = contracts.find(definition, version)
            filled = contract.inputs.filled(inputs)
            outputs = await asyncio.to_thread(solve_house, filled)
        except ContractUnknown as error:
            raise HTTPException(404, str(error)) from None
        except (ContractBroken, NoFit) as error:
            raise HTTPException(422, str(error)) from None
        app.state.solved += 1
        return {"results": []} if faults.broken_outputs else outputs

    return app


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
