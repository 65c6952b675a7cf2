"""A small Salesforce client: what the store on Salesforce records stands on, for handlers, too."""

from holdfast.salesforce.answers import SalesforceRefused, Written
from holdfast.salesforce.client import Salesforce
from holdfast.salesforce.ids import job_id_of, record_id_of
from holdfast.salesforce.soql import bind

__all__ = ["Salesforce", "SalesforceRefused", "Written", "bind", "job_id_of", "record_id_of"]
