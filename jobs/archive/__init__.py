"""`commitlake archive`: take what is new in broker stores into the lake."""
