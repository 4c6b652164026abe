"""`commitlake maintain`: compact, expire, clean up and repair a lake."""
