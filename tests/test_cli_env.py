"""``agviz env``: AGVIZ=1 enabled in an environment, or not, and what its variables are set to."""

from __future__ import annotations

import site
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from agviz.cli import env
from agviz.cli.main import main

SHIPPED = Path(env.__file__).parent.parent / "agviz.pth"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What takes the place of this environment's site-packages; no variable is set."""
    packages = tmp_path / "site-packages"
    packages.mkdir()
    put_in_place(packages, monkeypatch)
    for name in env.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    return packages / "agviz.pth"


def put_in_place(packages: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sysconfig, "get_path", {"purelib": str(packages)}.__getitem__)


NONE_SET = """\
AGVIZ                (not set)
AGVIZ_OUTPUT         (not set)
AGVIZ_ENGINE         (not set)
AGVIZ_CHECK_FORWARD  (not set)
"""


def test_it_is_enabled_and_disabled_as_often_as_asked(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = [
        ([], f"AGVIZ=1 is not enabled; `agviz env --enable` writes {place}\n{NONE_SET}"),
        (["--enable"], f"AGVIZ=1 is enabled: wrote {place}\n"),
        (["--enable"], f"AGVIZ=1 is enabled already, by {place}\n"),
        ([], f"AGVIZ=1 is enabled by {place}\n{NONE_SET}"),
        (["--disable"], f"AGVIZ=1 is disabled: removed {place}\n"),
        (["--disable"], f"AGVIZ=1 is not enabled: there is no {place}\n"),
    ]
    for options, said in calls:
        assert main(["env", *options]) == 0
        assert capsys.readouterr() == (said, "")
        if options == ["--enable"]:
            assert place.read_bytes() == SHIPPED.read_bytes()
    assert list(place.parent.iterdir()) == []


def test_what_another_version_wrote_is_written_again(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place.write_text("import sys\n")
    assert main(["env"]) == 0
    again = "enabled by another version of agviz; `agviz env --enable` writes again"
    assert capsys.readouterr().out.startswith(f"AGVIZ=1 is {again} {place}\n")
    assert main(["env", "--enable"]) == 0
    assert place.read_bytes() == SHIPPED.read_bytes()
    assert list(place.parent.iterdir()) == [place]


def test_the_variables_are_shown_as_they_are_set(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AGVIZ", "off")
    monkeypatch.setenv("AGVIZ_ENGINE", "fast\x1b[31m")
    assert main(["env"]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == [
        "AGVIZ                off",
        "AGVIZ_OUTPUT         (not set)",
        "AGVIZ_ENGINE         fast\N{REPLACEMENT CHARACTER}[31m",
        "AGVIZ_CHECK_FORWARD  (not set)",
    ]


def test_where_it_can_not_be_changed_one_sentence_says_so(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place.mkdir()
    for options, done in (["--disable"], "removed"), (["--enable"], "read"), ([], "read"):
        assert main(["env", *options]) == 2
        assert capsys.readouterr() == ("", f"agviz: {place} can't be {done}: Is a directory\n")
    put_in_place(Path("/sys"), monkeypatch)  # nobody, root included, can make a file there
    assert main(["env", "--enable"]) == 2
    out, said = capsys.readouterr()
    assert (out, said.count("\n")) == ("", 1)
    assert said.startswith("agviz: /sys/agviz.pth can't be written: ")


@pytest.mark.parametrize("in_a_venv", [False, True])
def test_what_is_installed_for_one_user_is_enabled_for_that_user(
    place: Path,
    in_a_venv: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(site, "getusersitepackages", lambda: str(SHIPPED.parent.parent))
    monkeypatch.setattr(site, "ENABLE_USER_SITE", True)
    monkeypatch.setattr(sys, "prefix", "/venv" if in_a_venv else sys.base_prefix)
    assert main(["env"]) == 0
    expected = place if in_a_venv else SHIPPED.parent.parent / "agviz.pth"
    assert capsys.readouterr().out.splitlines()[0].endswith(f" writes {expected}")


def test_the_two_are_not_asked_for_at_once() -> None:
    with pytest.raises(SystemExit) as ended:
        main(["env", "--enable", "--disable"])
    assert ended.value.code == 2


def test_it_is_about_the_environment_whose_interpreter_runs(enabled_python: str) -> None:
    command = [enabled_python, "-m", "agviz", "env"]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    (packages,) = Path(enabled_python).parent.parent.glob("lib/python*/site-packages")
    assert found.startswith(f"AGVIZ=1 is enabled by {packages / 'agviz.pth'}\n")


def test_what_an_uninstalled_agviz_leaves_does_nothing(tmp_path: Path) -> None:
    program = "import site, sys; site.addsitedir(sys.argv[1]); print(*sys.modules)"
    (tmp_path / "agviz.pth").write_bytes(SHIPPED.read_bytes())
    bare = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program, str(tmp_path)],
        env={"AGVIZ": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "agviz" not in bare.stdout
    assert bare.stderr == ""
