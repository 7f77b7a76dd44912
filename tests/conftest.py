"""What every test shares: how Hypothesis searches."""

from hypothesis import settings

# `make test` draws the same examples every time and has no clock; `make fuzz` looks for new ones.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("fuzz", max_examples=2_000, deadline=None, print_blob=True)
settings.load_profile("repeatable")
