"""Answers across ranks: ``across.py`` is the door, each other file one question."""
