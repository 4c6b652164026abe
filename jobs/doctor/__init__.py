"""`commitlake doctor`: check what a run needs, and report what is missing."""
