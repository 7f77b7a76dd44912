"""From a trace to a drawable model: modules as clusters, chains folded, neighbourhoods."""
