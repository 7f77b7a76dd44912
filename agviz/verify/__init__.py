"""Every backward pass of a program on both engines: torch's own and agviz's."""
