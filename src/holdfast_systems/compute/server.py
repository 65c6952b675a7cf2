"""API and worker in one process: `python -m holdfast_systems.compute.server --port 8081`."""

from typing import Any

from holdfast_systems.serve import serve


def make_app() -> Any:
    from holdfast_systems.compute import api_with_worker

    return api_with_worker.make_app()


if __name__ == "__main__":
    serve(make_app)
