"""Files for other tools: DOT, SVG, PNG, PDF, Chrome trace and JSON."""
