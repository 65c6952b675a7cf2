"""What `holdfast serve holdfast_systems.convert.app:hf --worker` serves and runs."""

import logging
import os

from holdfast_systems.convert.service import Convert
from holdfast_systems.convert.settings import ConvertSettings
from holdfast_systems.convert.steps import Translation
from holdfast_systems.environment import refuse_in_favor

refuse_in_favor(
    os.environ,
    {
        "HOLDFAST_CONCURRENCY": "WORKER_CONCURRENCY",
        "HOLDFAST_MAX_ATTEMPTS": "RETRY_MAX_ATTEMPTS",
    },
)
settings = ConvertSettings.from_environment()
hf = settings.make_holdfast()
convert = Convert(hf, settings)
logging.getLogger("holdfast").addFilter(Translation())
