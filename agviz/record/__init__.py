"""What a backward pass does, observed and written to a SQLite file."""
