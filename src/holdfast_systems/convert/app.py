"""What a worker runs: `holdfast worker holdfast_systems.convert.app:hf`."""

from holdfast_systems.convert.service import Convert
from holdfast_systems.convert.settings import ConvertSettings

settings = ConvertSettings.from_environment()
hf = settings.make_holdfast()
convert = Convert(hf, settings)
