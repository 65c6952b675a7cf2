"""`python -m holdfast_systems.compute.appserver --port 8080`"""

import logging
import os

from holdfast_systems.compute.appserver.faults import read_faults
from holdfast_systems.compute.appserver.server import make_app
from holdfast_systems.serving import serve

if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    serve(lambda: make_app(read_faults(os.environ)))
