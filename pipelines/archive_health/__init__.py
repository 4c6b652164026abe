"""State of an archive: its age, and the parts of the brokers' logs that are missing."""
