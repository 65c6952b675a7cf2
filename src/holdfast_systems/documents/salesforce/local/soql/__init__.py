"""SOQL: the part of Salesforce's query language that the documents system speaks."""

from holdfast_systems.documents.salesforce.local.soql.parser import parse
from holdfast_systems.documents.salesforce.local.soql.selection import Answer, run

__all__ = ["Answer", "parse", "run"]
