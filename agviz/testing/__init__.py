"""What the pytest plugin does once something is to be recorded."""
