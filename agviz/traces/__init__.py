"""What a backward pass did, kept in a SQLite file: recording, reading and replaying it."""
