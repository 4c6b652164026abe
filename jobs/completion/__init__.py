"""`commitlake completion`: completion scripts for shells."""
