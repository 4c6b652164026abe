"""`commitlake restore`: create a store from the lake."""
