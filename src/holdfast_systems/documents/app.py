"""`holdfast worker holdfast_systems.documents.app:hf`, on the organization in SALESFORCE_URL."""

from holdfast_systems.documents.system import Documents

hf = Documents().hf
