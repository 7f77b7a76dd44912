"""Measure and copy gradients and what nodes saved, for those who observe the engine."""
