"""`commitlake lag`: show how far consumer groups are behind."""
