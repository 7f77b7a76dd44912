"""The screens that open over the one on a trace, and the one on all ranks."""
