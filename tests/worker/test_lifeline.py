"""How a worker starts its warden. What the warden does: `tests/promises/test_13_frozen.py`."""

from __future__ import annotations

import os
import py_compile
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from holdfast.worker.processes.lifeline import _compiled


def test_a_warden_starts_from_bytecode_unless_its_source_is_newer(tmp_path: Path) -> None:
    source = tmp_path / "warden.py"
    source.write_text("")
    spec = spec_from_file_location("warden", source)
    assert spec is not None
    module = module_from_spec(spec)
    assert _compiled(module) == str(source)
    bytecode = py_compile.compile(str(source))
    assert _compiled(module) == bytecode
    later = os.path.getmtime(bytecode) + 1
    os.utime(source, (later, later))
    assert _compiled(module) == str(source)
