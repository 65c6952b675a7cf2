"""Serve a local Salesforce until SIGTERM."""

from __future__ import annotations

from holdfast_systems.documents.salesforce.app import make_app
from holdfast_systems.serving import serve

if __name__ == "__main__":
    serve(make_app)
