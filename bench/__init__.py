"""How fast Holdfast is, beside the raw database and other job queues."""

import os

# A process that may not keep what it compiled is larger, and starts a second later.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
