"""Which elements of the forward made a gradient, or a tensor of the forward, non-finite."""
