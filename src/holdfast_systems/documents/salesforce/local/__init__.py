"""A local Salesforce for development and tests: the parts of its REST API that this system uses.

`python -m holdfast_systems.documents.salesforce.local --port 0` serves an organization with two
users and two objects. Its records are lost when the process ends.
"""
