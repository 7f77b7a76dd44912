"""A debugger for PyTorch's backward pass: see, step, rewind and compare its work."""

__version__ = "0.1.0"
