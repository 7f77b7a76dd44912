"""The built-in subjects: small real models that are trained for the demo, and how it is done."""

SUBJECTS = {
    "char-lm": "agviz.demo.char_lm",
    "conv": "agviz.demo.conv",
    "lstm": "agviz.demo.lstm",
    "mlp": "agviz.demo.mlp",
}
"""Names on the command line, and the modules whose ``build(plant_nan=...)`` makes the subject."""
