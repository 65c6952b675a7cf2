"""What doctor reads of a database and its workers, and what it concludes. No I/O."""
