"""`python -m holdfast_systems.compute.appserver --port 8080`"""

import logging
import os
from typing import Any

from holdfast_systems.serve import serve


def make_app() -> Any:
    from holdfast_systems.compute.appserver import server
    from holdfast_systems.compute.appserver.faults import read_faults

    logging.basicConfig(level=logging.INFO)
    return server.make_app(read_faults(os.environ))


if __name__ == "__main__":
    serve(make_app)
