"""`commitlake snapshot`: keep how far consumer groups have come."""
