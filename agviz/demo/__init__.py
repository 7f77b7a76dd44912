"""Built-in models that `agviz demo` trains for a step."""
