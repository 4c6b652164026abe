"""`commitlake restore`: make a store out of the lake."""
