"""Serve it: `python -m holdfast_systems.convert.gateway --port 8080`."""

from typing import Any

from holdfast_systems.serve import serve


def make_app() -> Any:
    from holdfast_systems.convert.gateway import app

    return app.make_app()


if __name__ == "__main__":
    serve(make_app)
