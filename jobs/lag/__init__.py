"""`commitlake lag`: how far consumer groups are behind."""
