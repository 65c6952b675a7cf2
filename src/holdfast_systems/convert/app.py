"""What `holdfast serve holdfast_systems.convert.app:hf --worker` serves and runs."""

import logging

from holdfast_systems.convert.service import Convert
from holdfast_systems.convert.settings import ConvertSettings
from holdfast_systems.convert.steps import Translation

settings = ConvertSettings.from_environment()
hf = settings.make_holdfast()
convert = Convert(hf, settings)
logging.getLogger("holdfast").addFilter(Translation())
