"""Run the AppServer: `python -m holdfast_systems.compute.appserver --port 8080`."""

import logging

from holdfast_systems.serve import serve

if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    serve("holdfast_systems.compute.appserver.server:make_app")
