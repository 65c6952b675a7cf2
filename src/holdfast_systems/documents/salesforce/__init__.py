"""Salesforce: a client for its API, a store of jobs on its records, and a local stand-in."""
