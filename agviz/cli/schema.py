"""Print the JSON Schema of what agviz writes as JSON.

  agviz schema            the names of all documents, their versions, and what writes them
  agviz schema explain    the schema (draft 2020-12) of what `agviz explain FILE --json` prints

Each document says what it is, in its fields `document` and `version`. docs/formats.md says what may
change within a version.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from agviz.cli.console import bare_table, stdout_console, styled
from agviz.export.schemas.catalogue import schema
from agviz.words.documents import DOCUMENTS

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``agviz schema``."""
    parser.add_argument(
        "name", metavar="NAME", nargs="?", help="of a document (default: list them)"
    )


def execute(arguments: argparse.Namespace) -> int:
    """Print the schema, or the names of all; return 0."""
    if arguments.name is not None:
        print(json.dumps(schema(arguments.name), indent=2, ensure_ascii=False))
        return 0
    table = bare_table()
    for name, version in DOCUMENTS.items():
        table.add_row(name, str(version), styled(schema(name)["title"]))
    stdout_console().print(table)
    return 0
