"""`commitlake snapshot`: save the offsets of consumer groups."""
