"""A small Salesforce client, for the store on Salesforce records and for handlers."""

from holdfast_systems.documents.salesforce.client.answers import SalesforceRefused
from holdfast_systems.documents.salesforce.client.ids import job_id_of, record_id_of
from holdfast_systems.documents.salesforce.client.rest import Salesforce
from holdfast_systems.documents.salesforce.client.soql import bind

__all__ = ["Salesforce", "SalesforceRefused", "bind", "job_id_of", "record_id_of"]
