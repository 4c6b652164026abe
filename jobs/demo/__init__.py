"""`commitlake demo`: a small shop's broker, archived and looked at."""
