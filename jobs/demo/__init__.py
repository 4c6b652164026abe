"""`commitlake demo`: a small shop on a message broker, archived and shown."""
