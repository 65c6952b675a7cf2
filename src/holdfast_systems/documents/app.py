"""`holdfast worker holdfast_systems.documents.app:hf`, on the organization of SALESFORCE_URL."""

from __future__ import annotations

from holdfast_systems.documents.system import Documents

documents = Documents()
hf = documents.hf
