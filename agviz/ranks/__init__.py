"""Many ranks, one recording: a folder of traces, one for each process of a distributed program.

``folder.py`` is the door. Nothing here holds more of a rank than some numbers for each of its
backward passes and collectives; what is asked about nodes is read from the files of the ranks that
it concerns.
"""
