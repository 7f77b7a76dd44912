"""``python -m agviz`` is the command line."""

import sys

from agviz.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
