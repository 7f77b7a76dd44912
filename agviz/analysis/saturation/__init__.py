"""Activations at the rim of their range: over depth, over steps of a recurrence, over passes."""
