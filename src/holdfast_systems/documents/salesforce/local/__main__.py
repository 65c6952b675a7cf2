"""Serve a local Salesforce until SIGTERM."""

from typing import Any

from holdfast_systems.serve import serve


def make_app() -> Any:
    from holdfast_systems.documents.salesforce.local import app

    return app.make_app()


if __name__ == "__main__":
    serve(make_app)
