"""Serve a local Salesforce until SIGTERM."""

from holdfast_systems.serve import serve

if __name__ == "__main__":
    serve("holdfast_systems.documents.salesforce.local.app:make_app")
