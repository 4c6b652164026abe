"""`commitlake erase`: take messages out of a lake for good, and prove it."""
