"""The terminal user interface on a trace, growing or finished."""
