"""`commitlake guard`: show which segments a broker will delete, and whether they are archived."""
