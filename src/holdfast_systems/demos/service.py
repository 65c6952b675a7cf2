"""The five systems in one service: what `make run` serves.

Four share its database. Documents keep their queue in Salesforce, so they have their own worker;
with an organization in SALESFORCE_URL, their routes and pages are here, too.
"""

from __future__ import annotations

import os

from holdfast import Holdfast
from holdfast.webhooks import Webhooks
from holdfast_systems.compute.messages import Messages, check_renewal, escorts_of
from holdfast_systems.compute.service import Compute
from holdfast_systems.compute.settings import read_settings
from holdfast_systems.convert.service import Convert
from holdfast_systems.convert.settings import ConvertSettings
from holdfast_systems.demos.frame import WEBHOOK_RETRY
from holdfast_systems.documents.system import Documents
from holdfast_systems.environment import messengers_with
from holdfast_systems.passport.preset import BPC
from holdfast_systems.passport.queue import queue_from
from holdfast_systems.passport.system import Passport

settings, messages = read_settings(os.environ), Messages()
queue = queue_from(os.environ)
if escorts := escorts_of(settings, messages):
    queue["messengers"] = [*queue.get("messengers", messengers_with(os.environ)), *escorts]
hf = Holdfast(poll_seconds=0.2, **queue)
check_renewal(settings, hf)
webhooks = Webhooks(
    hf, presets=[BPC], https_only=False, allow_private_addresses=True, retry=WEBHOOK_RETRY
)
passport = Passport(hf, webhooks)
convert = Convert(hf, ConvertSettings.from_environment())
compute = Compute(hf, settings, messages)
if os.environ.get("SALESFORCE_URL"):
    documents = Documents(poll_seconds=0.3)
    documents.add_routes(hf)
