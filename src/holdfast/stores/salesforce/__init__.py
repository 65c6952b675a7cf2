"""Jobs as records in a customer's Salesforce."""

from holdfast.stores.salesforce.store import SalesforceStore

__all__ = ["SalesforceStore"]
