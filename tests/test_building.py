"""Wheels, with and without a C compiler, and the sdist; what installing them does."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Iterator
from email import message_from_bytes
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from agviz.record import capturing

ROOT = Path(__file__).parent.parent
MAKE = shutil.which("make")
BUILT = {"agviz/measure/_kernel.so", "agviz/record/_capture.so"}


needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler is on PATH")


def built(tmp_path: Path, compiler: str, target: str = "wheel", **named: str) -> tuple[str, Path]:
    """What the builder said, and what it built, of a copy of the sources."""
    source = tmp_path / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE", "hatch_build.py", "agviz", "engine"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, source / name)
    (source / ".gitignore").write_text("*.so\n")
    return build_in(source, tmp_path, target, CC=compiler, **named)


def build_in(source: Path, where: Path, target: str, **named: str) -> tuple[str, Path]:
    finished = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(where)],
        cwd=source,
        env={**os.environ, **named},
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    (made,) = where.glob("*.whl" if target == "wheel" else "*.tar.gz")
    return finished.stdout + finished.stderr, made


def files_of(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as content:
        return set(content.namelist())


@pytest.mark.slow
@needs_compiler
def test_a_wheel_with_compiled_code_is_for_one_platform_and_every_python(tmp_path: Path) -> None:
    _, wheel = built(tmp_path, "cc")
    assert re.search(r"-py3-none-(linux|macosx)_\w+\.whl$", wheel.name), wheel.name
    assert files_of(wheel) >= BUILT
    shutil.unpack_archive(wheel, tmp_path / "installed", "zip")
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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("compiler", "said"), [("no-such-cc", "no C compiler (no-such-cc)"), ("false", "can't be")]
)
def test_without_a_compiler_the_wheel_is_for_all(tmp_path: Path, compiler: str, said: str) -> None:
    output, wheel = built(tmp_path, compiler)
    assert said in output
    assert wheel.name.endswith("-py3-none-any.whl")
    assert not BUILT & files_of(wheel)


@pytest.mark.slow_but_one_in(3)
@needs_compiler
@pytest.mark.parametrize(("value", "is_pure"), [("1", True), ("yes", True), ("0", False)])
def test_the_compiled_parts_can_be_left_out(tmp_path: Path, value: str, is_pure: bool) -> None:
    _, wheel = built(tmp_path, "cc", AGVIZ_PURE=value)
    assert wheel.name.endswith("-py3-none-any.whl") is is_pure
    assert BUILT & files_of(wheel) == (set() if is_pure else BUILT)


def test_no_interpreter_reads_the_pth_file_until_it_is_asked_to(tmp_path: Path) -> None:
    _, wheel = built(tmp_path, "no-such-cc")
    found = {name for name in files_of(wheel) if name.endswith(".pth")}
    assert found == {"agviz/agviz.pth"}  # only those beside the packages are read


@pytest.mark.slow
@needs_compiler
def test_the_sdist_has_no_compiled_part_and_builds_the_same_wheel(tmp_path: Path) -> None:
    _, sdist = built(tmp_path, "cc", "sdist")
    with tarfile.open(sdist) as content:
        assert not [name for name in content.getnames() if name.endswith(".so")]
        content.extractall(tmp_path / "unpacked", filter="data")
    (source,) = (tmp_path / "unpacked").iterdir()
    _, from_sdist = build_in(source, tmp_path / "unpacked", "wheel")
    _, direct = build_in(tmp_path / "source", tmp_path, "wheel")
    assert files_of(from_sdist) == files_of(direct)
    assert files_of(direct) >= BUILT


@pytest.fixture
def nothing_loaded() -> Iterator[None]:
    """What captures stacks is found out again, before and after."""

    def forget() -> None:
        capturing.way.cache_clear()
        capturing._compiled.cache_clear()

    forget()
    yield
    forget()


@needs_compiler
@pytest.mark.usefixtures("nothing_loaded")
@pytest.mark.parametrize(
    ("there", "instead", "is_used"),
    [
        ("", "", True),
        ("PyFrame_GetBack", "PyFrame_NoLongerThere", False),
        ("intptr_t size;", "intptr_t size, another;", False),
        ("PyFrame_GetLasti(frame)", "PyFrame_GetLasti(frame) / 2", False),
    ],
)
def test_where_python_differs_from_what_compiled_code_relies_on_torch_captures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: str, instead: str, is_used: bool
) -> None:
    text = (ROOT / "agviz" / "record" / "capture.c").read_text()
    (tmp_path / "capture.c").write_text(text.replace(there, instead) if there else text)
    command = ["cc", "-std=gnu11", "-shared", "-fPIC", "capture.c", "-o", "_capture.so"]
    subprocess.run(command, cwd=tmp_path, check=True)
    monkeypatch.setattr(capturing, "_FILE", tmp_path / "_capture.so")
    assert capturing.is_built() is is_used
    assert capturing.way() is not None


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


def environment(folder: Path, paths: list[str]) -> tuple[Path, Path]:
    """A fresh environment that finds what is in ``paths``, too: its interpreter and packages."""
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "_paths.pth").write_text("\n".join(paths))
    return folder / "bin" / "python", packages


OF_THIS = [path for path in sys.path if "site-packages" in path]


def test_pip_would_install_agviz_beside_any_torch(tmp_path: Path) -> None:
    _, wheel = built(tmp_path, "no-such-cc")
    python, packages = environment(tmp_path / "environment", OF_THIS)
    old = packages / "torch-1.13.1.dist-info"
    old.mkdir()
    (old / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 1.13.1\n")
    (old / "RECORD").write_text("")
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install"]
    call = [*pip, "--dry-run", "--no-index", str(wheel)]
    said = subprocess.run(call, capture_output=True, text=True, check=True).stdout
    assert f"Requirement already satisfied: torch in {packages}" in said
    assert re.findall(r"Would install (.*)", said) in ([], ["agviz-0.1.0"])


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


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What ``make wheels`` builds."""
    folder = tmp_path_factory.mktemp("dist")
    if MAKE is None or shutil.which("cc") is None:
        pytest.skip("no make or no C compiler is on PATH")
    tools = subprocess.run([MAKE, "build/release/.installed"], cwd=ROOT, check=False)
    if tools.returncode:
        pytest.skip("auditwheel, build and twine can't be installed here")
    subprocess.run([MAKE, "wheels", f"DIST={folder}"], cwd=ROOT, check=True)
    return folder


PURE_PACKAGES = ("rich", "pygments", "markdown_it", "mdurl")
"""What the command line imports where there is no torch; one file serves each Python."""
KINDS = {"manylinux": "-py3-none-*manylinux_2_17_*.whl", "pure": "-py3-none-any.whl"}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13", "3.14"])
def test_each_wheel_serves_each_python(
    released: Path, version: str, kind: str, tmp_path: Path
) -> None:
    assert len(list(released.iterdir())) == len([*KINDS, "sdist"])
    (wheel,) = released.glob(f"agviz-*{KINDS[kind]}")
    has_torch = sys.version.startswith(f"{version}.")
    name = sys.executable if has_torch else f"python{version}"
    make = [name, "-m", "venv", "--without-pip", str(tmp_path / "environment")]
    if shutil.which(name) is None or subprocess.run(make, check=False).returncode:
        pytest.skip(f"there is no {name}")
    (packages,) = tmp_path.glob("environment/lib/python*/site-packages")
    if has_torch:
        (packages / "_paths.pth").write_text("\n".join(OF_THIS))
    else:
        for each in PURE_PACKAGES:
            (package,) = (p for path in OF_THIS if (p := Path(path) / each).is_dir())
            (packages / each).symlink_to(package)
    python = tmp_path / "environment" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(python)]
    options = ["install", "-q", "--no-deps", "--no-index", "--force-reinstall", str(wheel)]
    subprocess.run([*pip, *options], check=True)

    def run(*command: str | Path, code: int = 0) -> str:
        done = subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300
        )
        assert (done.returncode, done.stderr) == (code, "")
        return done.stdout

    agviz = python.with_name("agviz")
    assert run(agviz, "--version").startswith("agviz 0.")
    assert run(agviz, "env").startswith("AGVIZ=1 is not enabled;")
    said = " ".join(run(agviz, "doctor", code=not has_torch).split())
    if has_torch:
        assert ("by compiled code" in said, "is not built" in said) == (
            kind == "manylinux",
            kind == "pure",
        )
    else:
        assert "not installed: recorded traces can be read, not made" in said
    if kind == "manylinux":
        assert run(python, "-c", CAPTURES, packages / "agviz/record/_capture.so") == "fine\n"


CAPTURES = """
import ctypes, gc, sys
library = ctypes.PyDLL(sys.argv[1])
library.agviz_functions.restype = ctypes.py_object
one, some, nothing = library.agviz_functions()

def captured(depth):
    return captured(depth - 1) if depth else one()

def codes_of(stack):
    word = ctypes.c_size_t
    at = id(stack) + object.__basicsize__
    count = word.from_address(at).value
    words = (word * (2 * count)).from_address(at + ctypes.sizeof(word))
    return list(words[::2])

code = captured.__code__
stack = captured(600)
assert codes_of(stack) == [id(code)] * 400
assert [*stack] == stack.copy() == []
del stack
stack = captured(3)
assert codes_of(stack) == [*[id(code)] * 4, id(sys._getframe().f_code)]
assert not gc.is_tracked(stack)
del stack
before = sys.getrefcount(code)
for _ in range(10_000):
    captured(5)
assert sys.getrefcount(code) == before
library.agviz_allow.argtypes = (ctypes.c_int64,)
library.agviz_allow(2)
assert [some() is nothing for _ in range(4)] == [False, False, True, True]
print("fine")
"""
