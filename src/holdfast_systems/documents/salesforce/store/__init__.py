"""Jobs as records in a customer's Salesforce."""

from holdfast_systems.documents.salesforce.store.store import SalesforceStore, make_store

__all__ = ["SalesforceStore", "make_store"]
