"""How agviz writes numbers, shapes, nodes and measurements, wherever it writes them."""
