"""The panels of the terminal UI: each shows one view of plain data, none reads a file."""
