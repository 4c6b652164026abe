"""`commitlake doctor`: what a run needs, and what is missing."""
