"""The part of SOQL, Salesforce's query language, that the documents system uses."""

from holdfast_systems.documents.salesforce.local.soql.parser import parse
from holdfast_systems.documents.salesforce.local.soql.selection import run

__all__ = ["parse", "run"]
