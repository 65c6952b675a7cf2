"""An application with tables of its own beside its jobs."""
