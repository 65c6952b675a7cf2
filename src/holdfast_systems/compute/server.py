"""Run the API and a worker: `python -m holdfast_systems.compute.server --port 8081`."""

from holdfast_systems.serve import serve

if __name__ == "__main__":
    serve("holdfast_systems.compute.api_with_worker:make_app")
