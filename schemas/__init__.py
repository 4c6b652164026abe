"""What the bytes are (`schemas.layouts`) and what the tables are (`schemas.tables`)."""
