"""Run the gateway: `python -m holdfast_systems.convert.gateway --port 8080`."""

from holdfast_systems.serve import serve

if __name__ == "__main__":
    serve("holdfast_systems.convert.gateway.app:make_app")
