"""``python -m screenshots`` draws every picture in this folder again."""

from pathlib import Path

from screenshots import failing_test, graphs, live, pages, ranks, terminal


def main() -> None:
    """Draw; each module knows its own pictures."""
    folder = Path(__file__).parent
    for module in (graphs, terminal, ranks, live, pages, failing_test):
        for picture in module.render(folder):
            print(picture.name)


if __name__ == "__main__":
    main()
