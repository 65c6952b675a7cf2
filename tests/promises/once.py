"""A worker's module that no second process can import."""

import sys

from holdfast import Holdfast
from tests.promises.handlers import Jobs

if any("suspects_only" in word for word in sys.argv):
    raise ConnectionError("somebody else has the port")

hf = Holdfast()
jobs = Jobs(hf)
