"""Whether the gradients of a program are right: what ``agviz check`` looks at while it runs."""
