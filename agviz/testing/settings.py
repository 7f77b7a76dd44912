"""What was chosen: marker, then command line, then environment, then ini file."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import pytest

if TYPE_CHECKING:
    from agviz.record.capture_level import CaptureLevel

MODES: Final = ("off", "on", "retain-on-failure")
LEVELS: Final = ("none", "health", "full")
ENGINES: Final = ("auto", "exact", "native")
KINDS: Final = ("nan", "inf")
_MARKER: Final = {"mode", "values", "check_forward", "fail_on", "max_norm"}
_CHECK_FORWARD: Final = ("PYTEST_AGVIZ_CHECK_FORWARD", "AGVIZ_CHECK_FORWARD")
OUTPUT: Final = "agviz-results"


@dataclass(frozen=True, kw_only=True)
class PluginSettings:
    """What holds for the whole run."""

    mode: str
    output: Path
    values: CaptureLevel
    engine: str
    """Which engine runs: one of :data:`ENGINES`."""
    check_forward: bool
    hide_summary: bool
    verify: bool
    baseline: Path | None
    """The results of an earlier run that gradients are compared with."""
    update: bool
    """Whether these are replaced where they differ, and no test fails for it."""
    rtol: float
    keep: str
    """Bytes that a trace may have, as written; empty: as everywhere."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What holds for one test."""

    mode: str
    values: CaptureLevel
    engine: str = "auto"
    check_forward: bool = False
    fail_on: frozenset[str] = frozenset()
    max_norm: float | None = None
    needs_all_passes: bool = True
    """Whether each backward pass is looked at or compared, or the trace was asked for: then none of
    many is left out."""


def read_settings(config: pytest.Config) -> PluginSettings:
    """What command line, environment and ini file say.

    Raises:
        pytest.UsageError: that makes no sense.
    """
    mode = _one_of(MODES, "agviz", _value(config, "agviz") or "off")
    values = _one_of(LEVELS, "agviz-values", _value(config, "agviz_values") or "health")
    engine = _one_of(ENGINES, "agviz-engine", _engine(config))
    verify: bool = config.getoption("agviz_verify")
    compare: str | None = config.getoption("agviz_compare")
    worker: dict[str, Any] = getattr(config, "workerinput", {})
    here = Path(worker.get("agviz_here") or config.invocation_params.dir)
    output = here / (_value(config, "agviz_output") or OUTPUT)
    baseline = None if compare is None else here / compare
    if verify and (mode != "off" or baseline is not None):
        raise pytest.UsageError("--agviz-verify records nothing; use it without --agviz")
    update: bool = config.getoption("agviz_update")
    if update and baseline is None:
        raise pytest.UsageError("--agviz-update: name the baselines with --agviz-compare=DIR")
    if baseline is not None:
        if update and not worker:
            _make(baseline)
        if not baseline.is_dir():
            raise pytest.UsageError(f"--agviz-compare: there is no folder {baseline}")
        if baseline.resolve() == output.resolve():
            raise pytest.UsageError(
                f"--agviz-compare: {baseline} is where this run writes; name another --agviz-output"
            )
        if values == "none":
            raise pytest.UsageError("--agviz-compare needs the values of gradients")
        mode = "retain-on-failure" if mode == "off" else mode
    hide = config.getoption("hide_agviz_summary")
    return PluginSettings(
        mode=mode,
        output=output,
        values=cast("CaptureLevel", values),
        engine=engine,
        check_forward=_checks_forward(config),
        hide_summary=bool(config.getini("hide_agviz_summary") if hide is None else hide),
        verify=verify,
        baseline=baseline,
        update=update,
        keep=_value(config, "agviz_keep"),
        rtol=config.getoption("agviz_rtol"),
    )


def read_choice(item: pytest.Item, settings: PluginSettings) -> Choice:
    """What holds for a test: its own markers, the nearest first, go before the settings.

    Raises:
        pytest.UsageError: a marker makes no sense.
    """
    given: dict[str, Any] = {}
    asks = "agviz" in getattr(item, "fixturenames", ())
    for marker in item.iter_markers("agviz"):
        asks = True
        named = dict(marker.kwargs)
        if marker.args:
            named["mode"], *more = marker.args
            if more:
                raise pytest.UsageError("the marker agviz takes one argument without a name: mode")
        if strange := set(named) - _MARKER:
            raise pytest.UsageError(f"the marker agviz has no argument {min(strange)!r}")
        given = named | given
    mode = settings.mode
    if asks and mode == "off":
        mode = "retain-on-failure"
    kinds = given.get("fail_on", ())
    if isinstance(kinds, str) or not isinstance(kinds, Iterable):
        kinds = (kinds,)
    fail_on = frozenset(_one_of(KINDS, "fail_on", kind) for kind in kinds)
    values = _one_of(LEVELS, "values", given.get("values", settings.values))
    check_forward = given.get("check_forward", settings.check_forward)
    if not isinstance(check_forward, bool):
        raise pytest.UsageError(f"check_forward={check_forward!r} is neither True nor False")
    max_norm = given.get("max_norm")
    if max_norm is not None and not (isinstance(max_norm, int | float) and max_norm >= 0):
        raise pytest.UsageError(f"max_norm={max_norm!r} is no number from 0 on")
    if values == "none" and (fail_on or max_norm is not None):
        raise pytest.UsageError("fail_on and max_norm need the values of gradients")
    mode = _one_of(MODES, "mode", given.get("mode", mode))
    needs_all = asks or check_forward or mode == "on" or settings.baseline is not None
    needs_all |= bool(settings.keep)
    return Choice(
        mode=mode,
        needs_all_passes=needs_all,
        values=cast("CaptureLevel", values),
        engine=settings.engine,
        check_forward=check_forward,
        fail_on=fail_on,
        max_norm=max_norm,
    )


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise pytest.UsageError(
            f"--agviz-update: {folder} can't be made: {error.strerror}"
        ) from error


def _value(config: pytest.Config, name: str) -> str:
    """Command line, else environment, else ini file."""
    given: str | None = config.getoption(name)
    if given is None:
        given = os.environ.get(f"PYTEST_{name.upper()}")
    return str(config.getini(name) or "") if given is None else given


def _engine(config: pytest.Config) -> str:
    """The same; ``AGVIZ_ENGINE``, which ``agviz run`` knows, counts as well."""
    if config.getoption("agviz_engine") is None and "PYTEST_AGVIZ_ENGINE" not in os.environ:
        said = os.environ.get("AGVIZ_ENGINE", "").strip().lower()
        if said:
            return said
    return _value(config, "agviz_engine") or "auto"


def _checks_forward(config: pytest.Config) -> bool:
    """The same, where the question is whether."""
    if config.getoption("agviz_check_forward"):
        return True
    said = next((os.environ[name] for name in _CHECK_FORWARD if name in os.environ), None)
    if said is not None:
        from agviz.record.options import FALSE

        return said.strip().lower() not in FALSE
    return bool(config.getini("agviz_check_forward"))


def _one_of(known: tuple[str, ...], what: str, given: object) -> str:
    if given not in known:
        raise pytest.UsageError(f"{what}={given!r} is none of {', '.join(known)}")
    return str(given)
