"""A local Salesforce: its REST API for what the documents system uses, for development and tests.

`python -m holdfast_systems.documents.salesforce.local --port 0` serves an organization with two
users and two objects, whose records last as long as the process.
"""
