"""A program that prints its environment."""

from __future__ import annotations

import json
import os
import signal
import sys

if __name__ == "__main__":
    found = {
        "arguments": sys.argv,
        "path": sys.path,
        "folder": os.getcwd(),
        "environment": dict(os.environ),
        "main": sys.modules["__main__"].__spec__.name,  # type: ignore[union-attr]
        "interrupt": str(signal.getsignal(signal.SIGINT)).partition(" at ")[0],
        "signals": [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGCHLD)],
        "input": sys.stdin.read(),
        "unbuffered": sys.stdout.write_through,  # type: ignore[union-attr]
    }
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stderr.write("told\n")
    sys.exit(7)
