"""The pytest plugin: a failing backward explains itself. See ``docs/pytest.md``.

pytest imports this module in every run, so it imports nothing but pytest and light modules of
agviz; what records is registered only where something is to be recorded or verified.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from agviz.testing.settings import ENGINES, LEVELS, MODES, OUTPUT, read_settings

if TYPE_CHECKING:
    from agviz.testing.fixture import Agviz

_SESSION: Final = "agviz-session"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options of the plugin and their names in the ini file."""
    group = parser.getgroup("agviz", "agviz: backward passes of tests")
    group.addoption(
        "--agviz",
        choices=MODES,
        help="record the backward passes of each test, and keep the trace of all tests or of"
        " those that fail (default: off)",
    )
    group.addoption(
        "--agviz-output", metavar="DIR", help=f"where the traces go (default: {OUTPUT})"
    )
    group.addoption(
        "--agviz-values",
        choices=LEVELS,
        help="what to record of gradients: nothing, counts and extent (default), or all of them",
    )
    group.addoption(
        "--agviz-check-forward",
        action="store_true",
        default=None,
        help="record each torch function that a test calls, too: which line cut a parameter off,"
        " or where the forward became non-finite",
    )
    group.addoption(
        "--agviz-engine",
        choices=ENGINES,
        help="which engine runs backward: agviz's own (exact), torch's, observed from hooks"
        " (native), or the exact one where it fits this torch (auto, default)",
    )
    group.addoption(
        "--agviz-keep",
        metavar="SIZE",
        help="bound of each trace: a longer test keeps its first backward passes, its last ones and"
        " each that failed or was not finite (default: 200MB, with --agviz-values=full 2GB; none:"
        " no bound)",
    )
    group.addoption(
        "--hide-agviz-summary",
        action="store_true",
        default=None,
        help="no lines of agviz at the end of the run",
    )
    group.addoption(
        "--agviz-verify",
        action="store_true",
        help="run each backward pass on torch's engine and on agviz's, and fail the test where"
        " they differ; nothing is recorded",
    )
    group.addoption(
        "--agviz-compare",
        metavar="DIR",
        help="fail a test whose gradients differ from those in its trace in DIR, which is an"
        " earlier run's --agviz-output with --agviz=on",
    )
    group.addoption(
        "--agviz-update",
        action="store_true",
        help="for --agviz-compare: let no test fail for other gradients, and put its trace in the"
        " place of the one in DIR",
    )
    group.addoption(
        "--agviz-rtol",
        metavar="X",
        type=float,
        default=1e-5,
        help="for --agviz-compare: numbers may differ by X times the largest magnitude in a"
        " gradient (default: 1e-5)",
    )
    parser.addini("agviz", "as --agviz")
    parser.addini("agviz_output", "as --agviz-output")
    parser.addini("agviz_values", "as --agviz-values")
    parser.addini("agviz_engine", "as --agviz-engine")
    parser.addini("agviz_keep", "as --agviz-keep")
    parser.addini("agviz_check_forward", "as --agviz-check-forward", type="bool", default=False)
    parser.addini("hide_agviz_summary", "as --hide-agviz-summary", type="bool", default=False)


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker, and record from the first test on where that is asked for."""
    config.addinivalue_line(
        "markers",
        "agviz(mode, values, check_forward, fail_on, max_norm): record the backward passes of this"
        " test, and the forward (check_forward=True); fail it where a gradient becomes non-finite"
        " (fail_on=['nan', 'inf']) or too large (max_norm)",
    )
    settings = read_settings(config)
    if settings.mode != "off" or settings.verify or settings.baseline is not None:
        _register(config)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Record those tests, too, that ask for it themselves."""
    if not config.pluginmanager.has_plugin(_SESSION) and any(map(_asks, items)):
        _register(config)


def _asks(item: pytest.Item) -> bool:
    if "agviz" in getattr(item, "fixturenames", ()):
        return True
    return item.get_closest_marker("agviz") is not None


def _register(config: pytest.Config) -> None:
    from agviz.testing.session import PluginSession

    config.pluginmanager.register(PluginSession(config, read_settings(config)), _SESSION)


@pytest.fixture
def agviz(request: pytest.FixtureRequest) -> Agviz:
    """The backward passes of this test as they are recorded, and what can be asserted of them."""
    session: Any = request.config.pluginmanager.get_plugin(_SESSION)
    handle: Agviz = session.handle(request.node)
    return handle
