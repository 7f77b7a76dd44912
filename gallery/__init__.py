"""A public benchmark: programs whose backward pass goes wrong, and what a right answer must hold.

Run it by ``python -m gallery``; docs/benchmark.md says how it judges and how a tool is entered.
"""
