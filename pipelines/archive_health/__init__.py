"""State of an archive: how new it is, and what of the brokers' logs it lacks."""
