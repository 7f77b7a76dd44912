"""The command line: one verb per file, each file's docstring its help."""
