"""What a process of a distributed program records beyond its own backward passes.

``rank_observer.py`` is the door: it begins once the program has made a process group, and does
nothing in any other program.
"""
