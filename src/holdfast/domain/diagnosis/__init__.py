"""How a database and what works on it are: what is read, and what it means. No input, no output."""
