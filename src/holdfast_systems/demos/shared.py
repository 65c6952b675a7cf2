"""The service that all demos share: `make run`."""

from __future__ import annotations

from importlib import import_module

from holdfast import Holdfast
from holdfast_systems.demos.frame import Stage

TARGET = "holdfast_systems.demos.service:hf"
SYSTEMS = ("webhooks", "passport", "convert", "compute", "documents")


async def start(stage: Stage, port: int) -> None:
    """Start the service, and before it what its systems need."""
    settings: dict[str, str] = {}
    for system in SYSTEMS:
        settings |= await import_module(f"holdfast_systems.demos.{system}").prepare(stage)
    await stage.start_api(TARGET, settings, port)


async def make_key(stage: Stage) -> str:
    """Make a key for whoever wants to look: with the first key, every request needs one."""
    hf = Holdfast(stage.url)
    try:
        scopes = ["read", "enqueue", "operate", "work", "admin"]
        return (await hf.keys.create("demo", scopes=scopes)).key
    finally:
        await hf.close()
