"""The wheel that is built, with and without a C compiler."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
MAKE = shutil.which("make")
BUILT = {"agviz/measure/_kernel.so", "agviz/record/_capture.so"}


def built(tmp_path: Path, compiler: str) -> tuple[str, Path]:
    """What the builder said, and the wheel, of a copy of the sources."""
    source = tmp_path / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE", "hatch_build.py", "agviz", "engine"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, source / name)
    (source / ".gitignore").write_text("*.so\n")
    finished = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=source,
        env={**os.environ, "CC": compiler},
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    (wheel,) = tmp_path.glob("*.whl")
    return finished.stdout + finished.stderr, wheel


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler (cc) is on PATH")
def test_a_wheel_with_compiled_code_is_for_one_platform_and_every_python(tmp_path: Path) -> None:
    _, wheel = built(tmp_path, "cc")
    assert re.search(r"-py3-none-(linux|macosx)_\w+\.whl$", wheel.name), wheel.name
    with zipfile.ZipFile(wheel) as content:
        assert set(content.namelist()) >= BUILT
        content.extractall(tmp_path / "installed")
    measure = (
        "import torch; from agviz.measure import kernel as k;"
        "print(k.measured(torch.tensor([3.0, -4.0, 0.0])));"
        "from agviz.record import capturing; print(capturing.is_built())"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "installed")}
    found = subprocess.run(
        [sys.executable, "-P", "-c", measure],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.startswith("(0, 0, 0, 3, 1, -4.0, 3.0, -0.333"), found.stdout
    assert found.stdout.endswith("True\n"), found.stdout


@pytest.mark.parametrize(
    ("compiler", "said"), [("no-such-cc", "no C compiler (no-such-cc)"), ("false", "can't be")]
)
def test_without_a_compiler_the_wheel_is_for_all(tmp_path: Path, compiler: str, said: str) -> None:
    output, wheel = built(tmp_path, compiler)
    assert said in output
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as content:
        assert not BUILT & set(content.namelist())


def test_installing_agviz_replaces_no_torch(tmp_path: Path) -> None:
    _, wheel = built(tmp_path, "no-such-cc")
    with zipfile.ZipFile(wheel) as content:
        (name,) = (each for each in content.namelist() if each.endswith(".dist-info/METADATA"))
        metadata = message_from_bytes(content.read(name))
    needed = [Requirement(text) for text in metadata.get_all("Requires-Dist", [])]
    torch = [each for each in needed if each.name == "torch"]
    assert len(torch) == 1, needed
    assert torch[0].marker is None
    for version in ("1.13.1", "2.4.0", "2.8.0", "2.13.0+cpu", "2.15.0+cu132", "2.16.0.dev1", "3.0"):
        assert torch[0].specifier.contains(version, prereleases=True), (version, torch)


@pytest.mark.skipif(MAKE is None, reason="no make is on PATH")
def test_make_install_gets_the_torch_that_everything_is_tested_with() -> None:
    pins = [Requirement(line) for line in (ROOT / "constraints.txt").read_text().splitlines()
            if line and not line.startswith("#")]  # fmt: skip
    assert [str(each.specifier) for each in pins if each.name == "torch"] == ["==2.13.0"]
    commands = subprocess.run(
        [str(MAKE), "--dry-run", "--always-make", "install"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    (pip,) = (line for line in commands.splitlines() if " pip install " in line)
    assert " -c constraints.txt " in pip
