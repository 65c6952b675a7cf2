"""The five jobs of the pipeline, each in a module of its own, each ending in one transaction with
its audit event and the job that follows."""
