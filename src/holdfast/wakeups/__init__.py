"""Wake-ups: hints that a job is due. They only save time; the database is the truth."""
