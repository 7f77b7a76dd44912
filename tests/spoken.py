"""Answers as they are read aloud: no longer than the gallery allows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agviz.cli.main import main
from gallery.judge import MOST_WORDS, word_count

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def check_length(path: Path, capsys: pytest.CaptureFixture[str], *verbs: str) -> None:
    """What verbs say of a trace has words, and not too many."""
    for verb in verbs:
        capsys.readouterr()
        main([verb, str(path)])
        said = capsys.readouterr().out
        assert 0 < word_count(said) <= MOST_WORDS, said
