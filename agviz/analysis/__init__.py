"""Answers from a trace: first non-finite gradient, missing gradients, cost, divergence."""
