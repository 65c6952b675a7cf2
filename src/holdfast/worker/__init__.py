"""From a claim to its settlement: claimer, executor, settler, lease keeper."""
