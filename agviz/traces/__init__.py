"""What a backward pass did, kept in a SQLite file: the format, reading and replaying it."""
