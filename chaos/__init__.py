"""Break everything at random while jobs run, then account for every job: `make chaos`."""
