"""float32 against float64: backward passes computed again, once the program has ended."""
