"""Serve it: `python -m holdfast_systems.convert.gateway --port 8080`."""

from holdfast_systems.convert.gateway.app import make_app
from holdfast_systems.serving import serve

if __name__ == "__main__":
    serve(make_app)
