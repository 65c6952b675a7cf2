"""A small Salesforce client: what the store on Salesforce records stands on, for handlers, too."""

from holdfast_systems.documents.salesforce.client.answers import SalesforceRefused, Written
from holdfast_systems.documents.salesforce.client.ids import job_id_of, record_id_of
from holdfast_systems.documents.salesforce.client.rest import Salesforce
from holdfast_systems.documents.salesforce.client.soql import bind

__all__ = ["Salesforce", "SalesforceRefused", "Written", "bind", "job_id_of", "record_id_of"]
