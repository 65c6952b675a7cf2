"""Where jobs are kept: the protocol, and a module for each database."""
