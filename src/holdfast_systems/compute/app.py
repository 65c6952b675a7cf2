"""What `holdfast serve holdfast_systems.compute.app:hf --worker` serves and runs."""

import os

from holdfast import Holdfast
from holdfast_systems.compute.service import Compute
from holdfast_systems.compute.settings import read_settings

settings = read_settings(os.environ)
hf = Holdfast(settings.database_url)
compute = Compute(hf, settings)
