"""What a worker process of these tests runs: `holdfast worker tests.promises.app:hf`."""

from holdfast import Holdfast
from tests.promises.handlers import Jobs

hf = Holdfast()
jobs = Jobs(hf)
