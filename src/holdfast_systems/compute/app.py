"""What `holdfast serve holdfast_systems.compute.app:hf --worker` serves and runs."""

import os

from holdfast_systems.compute.messages import Messages, make_holdfast
from holdfast_systems.compute.service import Compute
from holdfast_systems.compute.settings import read_settings

settings = read_settings(os.environ)
messages = Messages()
hf = make_holdfast(settings, messages, os.environ)
compute = Compute(hf, settings, messages)
