"""One backward node alone: what has to be kept of it, and the script that runs it again."""
