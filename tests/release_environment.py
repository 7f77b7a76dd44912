"""A virtual environment with any released torch, on a machine without a GPU.

Released Linux wheels of torch are mostly CUDA builds whose NVIDIA libraries weigh gigabytes. On the
CPU none of their functions is ever called, but the dynamic linker wants them to be there. So the
wheel is installed without its dependencies, and small libraries are built that define each symbol
torch asks for; a CPU wheel asks for none. That needs ``cc`` and ``readelf``. What uses CUDA there
is meaningless; all that runs on the CPU is torch as released.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import TypeAlias

ROOT = Path(__file__).parent.parent
NEEDS_OF_TORCH = "filelock fsspec jinja2 mpmath networkx numpy setuptools sympy typing-extensions"
NEEDS_OF_TESTS = (
    "debugpy duckdb expecttest graphviz hypothesis packaging perfetto pyarrow pygraphviz pytest"
    " pytest-asyncio pytest-html pytest-rerunfailures pytest-textual-snapshot pytest-timeout"
    " pytest-xdist rich textual textual-serve viztracer wasmtime"
)
_NVIDIA = re.compile(r"lib(cu|nv|nccl)")
_SYMBOL = re.compile(r"cu[a-zA-Z]|nccl|nv|CU|__cuda|__nv")
_UNDEFINED = re.compile(
    r"(?:NOTYPE|FUNC|OBJECT)\s+(?:GLOBAL|WEAK)\s+DEFAULT\s+UND\s+([\w.]+)(?:@(\S+))?"
)
_NVSHMEM = "libtorch_nvshmem.so"
Symbols: TypeAlias = dict[str, set[str]]
"""By version of the symbol; empty: it has none."""


def make_environment(folder: Path, torch: str, python: str) -> Path:
    """Make an environment with that torch, what the tests need, and agviz from this folder.

    Returns:
        Its interpreter.
    """
    _run(python, "-m", "venv", str(folder))
    interpreter = folder / "bin" / "python"
    pip = [str(interpreter), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    pins = folder / "constraints.txt"
    kept = (ROOT / "constraints.txt").read_text().splitlines(keepends=True)
    pins.write_text("".join(line for line in kept if not line.startswith("torch==")))
    _run(*pip, "--no-deps", f"torch=={torch}")
    _run(*pip, "-c", str(pins), *NEEDS_OF_TORCH.split(), *NEEDS_OF_TESTS.split())
    _run(*pip, "--no-deps", "-e", str(ROOT))
    (library,) = folder.glob("lib/python3*/site-packages/torch/lib")
    _stand_in(library)
    _run(str(interpreter), "-c", "import torch; torch.ones(1, requires_grad=True).backward()")
    return interpreter


def _run(*command: str) -> None:
    subprocess.run(command, check=True)


def _stand_in(folder: Path) -> None:
    """Build what torch's own libraries in ``folder`` need of NVIDIA's, and is not there."""
    own = [
        path
        for path in folder.glob("*.so*")
        if not _NVIDIA.match(path.name) and "nvshmem" not in path.name
    ]
    needed, symbols = _wanted(own)
    unnamed = symbols.pop("", {})
    for name in sorted(name for name in needed if _NVIDIA.match(name) or name == _NVSHMEM):
        _compile(folder / name, symbols.get(name) or unnamed)


def _wanted(libraries: list[Path]) -> tuple[set[str], dict[str, Symbols]]:
    """The libraries that these need, and the symbols by library; "": of none by name."""
    needed: set[str] = set()
    symbols: dict[str, Symbols] = defaultdict(lambda: defaultdict(set))
    for library in libraries:
        needed.update(re.findall(r"NEEDED.*\[(.*?)\]", _readelf("-d", library)))
        file, of_version = "", {}
        for line in _readelf("-V", library).splitlines():
            if begun := re.search(r"File: (\S+)", line):
                file = begun[1]
            if file and (named := re.search(r"Name: (\S+)\s+Flags", line)):
                of_version[named[1]] = file
        for symbol, version in _UNDEFINED.findall(_readelf("--dyn-syms", library)):
            if version and _NVIDIA.match(of_version.get(version, "")):
                symbols[of_version[version]][version].add(symbol)
            elif "nvshmem_extension" in symbol:
                symbols[_NVSHMEM][""].add(symbol)
            elif not version and _SYMBOL.match(symbol):
                symbols[""][""].add(symbol)
    return needed, symbols


def _readelf(what: str, library: Path) -> str:
    command = ["readelf", "-W", what, str(library)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _compile(target: Path, symbols: Symbols) -> None:
    """A library whose functions all say that there is no device (``cudaErrorNoDevice``)."""
    result = 0 if target.name == _NVSHMEM else 100
    source = "\n".join(
        f"long {symbol}(void) {{ return {result}; }}"
        for of_version in symbols.values()
        for symbol in sorted(of_version)
    )
    script = "\n".join(
        f"{version} {{ global: {' '.join(f'{symbol};' for symbol in sorted(of_version))} }};"
        for version, of_version in symbols.items()
        if version
    )
    with tempfile.NamedTemporaryFile("w", suffix=".map") as versions:
        versions.write(script)
        versions.flush()
        options = [f"-Wl,-soname,{target.name}"]
        options += [f"-Wl,--version-script={versions.name}"] if script else []
        command = ["cc", "-shared", "-fPIC", "-w", "-x", "c", "-", "-o", str(target), *options]
        subprocess.run(command, input=source, text=True, check=True)
