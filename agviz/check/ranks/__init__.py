"""Several ranks against one process: the gradients that they end up with, and their own."""
