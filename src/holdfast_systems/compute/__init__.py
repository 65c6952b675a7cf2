"""Compute: jobs whose inputs and outputs are checked against contracts, solved by an AppServer.

The system is `holdfast_systems.compute.service.Compute`. Nothing is imported here, so that Ctrl-C
ends the servers of this package even while they start.
"""
