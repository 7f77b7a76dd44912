"""The screens of the terminal UI: the session itself and what opens over it."""
