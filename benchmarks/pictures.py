"""How well pictures of twelve training steps can be read: ``python -m benchmarks.pictures``.

Each step is drawn as a graph and in time by agviz, and by ``torchviz.make_dot``, whose DOT the same
Graphviz draws within 60 s. Chromium shows each picture 1,440 px wide and measures it: the smallest
text in px, and how much of the area is empty, in squares of 16 px. CPU time is that of the process
and of Graphviz, from the recorded file (or the loss) to the SVG.

    python -m benchmarks.pictures [--out FOLDER] [NAME ...]

FOLDER keeps the pictures, as SVG and as PNG.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch
from playwright.sync_api import Page, sync_playwright

import agviz
from agviz.demo.session import DemoSession
from agviz.errors import DrawingError
from agviz.export.draw import drawn, render
from agviz.export.pass_timeline import PassTimeline
from agviz.export.timeline import TimePicture
from agviz.ranks.folder import Folder
from agviz.ranks.run import Run
from agviz.traces.reader import Trace
from screenshots import ranks
from screenshots.scenes import STEPS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

WIDTH = 1440
LIMIT_S = 60.0
TWO_DEVICES, RANKS = "two-devices-nan", "four-ranks"
MEASURE = """async (width) => {
  const svg = document.querySelector("svg");
  const view = svg.viewBox.baseVal;
  const scale = width / view.width;
  const sizeOf = (text) => parseFloat(getComputedStyle(text).fontSize);
  const sizes = [...svg.querySelectorAll("text")].map(sizeOf);
  const height = Math.round(view.height * scale);
  svg.setAttribute("width", width);
  svg.setAttribute("height", height);
  const image = new Image();
  const text = new XMLSerializer().serializeToString(svg);
  image.src = "data:image/svg+xml," + encodeURIComponent(text);
  await image.decode();
  const cell = 16;
  const canvas = new OffscreenCanvas(width, cell);
  const pen = canvas.getContext("2d", { willReadFrequently: true });
  let [empty, all] = [0, 0];
  for (let top = 0; top + cell <= height; top += cell) {
    pen.drawImage(image, 0, -top);
    const { data } = pen.getImageData(0, 0, width, cell);
    for (let left = 0; left + cell <= width; left += cell) {
      let same = true;
      for (let y = 0; y < cell && same; y++) {
        for (let x = left; x < left + cell; x++) {
          const at = 4 * (y * width + x);
          if (data[at] < 250 || data[at + 1] < 250 || data[at + 2] < 250) { same = false; break; }
        }
      }
      all += 1;
      empty += same;
    }
  }
  return [Math.min(...sizes) * scale, empty / all, height];
}"""
"""Gives the smallest text in px, the share of squares that are all paper, and the height in px."""


class Drawn(NamedTuple):
    """A picture, and what it took."""

    svg: bytes
    cpu_s: float
    failure: str
    """Why there is none; empty where there is one."""


class Seen(NamedTuple):
    """A picture as it is read."""

    smallest_px: float
    empty: float
    height_px: float


def pictures(name: str, folder: Path) -> Iterator[tuple[str, Drawn]]:
    """All of one training step, by who draws."""
    place = folder / f"{name}.agviz"
    torch.manual_seed(0)
    if name == RANKS:
        place = folder / name
        place.mkdir()
        ranks.record(place)
        yield "agviz timeline", _timed(lambda: _joined(TimePicture(Run.read(Folder.open(place)))))
        place = min(place.glob("*.rank0.*.agviz"))
    elif name == TWO_DEVICES:
        DemoSession("char-lm", steps=1, plant_nan=True).record(place)
    else:
        step = STEPS[name]()
        yield "torchviz", _timed(lambda: _torchviz(step.loss, step.model))
        with agviz.trace(step.model, path=place):
            STEPS[name]().loss.backward()
    with Trace.open(place) as trace:
        yield "agviz graph", _timed(lambda: drawn(trace, "svg"))
        if name != RANKS:
            yield "agviz timeline", _timed(lambda: _joined(PassTimeline(trace)))


def _joined(picture: PassTimeline | TimePicture) -> bytes:
    return "".join(picture.pieces()).encode()


def _torchviz(loss: torch.Tensor, model: torch.nn.Module) -> bytes:
    from torchviz import make_dot

    return render(make_dot(loss, params=dict(model.named_parameters())).source, "svg", LIMIT_S)


def _timed(draw: Callable[[], bytes]) -> Drawn:
    before = _cpu_s()
    try:
        svg, failure = draw(), ""
    except (DrawingError, RecursionError) as error:
        late = "did not finish" in str(error)
        svg, failure = b"", f"not within {LIMIT_S:g} s" if late else type(error).__name__
    return Drawn(svg, _cpu_s() - before, failure)


def _cpu_s() -> float:
    both = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in both)


def see(page: Page, svg: bytes, png: Path | None) -> Seen:
    """Show a picture in the browser, and measure it there."""
    text = svg.decode()
    page.set_content(f'<body style="margin:0">{text[text.index("<svg") :]}</body>')
    seen = Seen(*page.evaluate(MEASURE, WIDTH))
    if png is not None:
        page.screenshot(path=png, full_page=True)
    return seen


def main() -> None:
    """Draw, measure, and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these")
    parser.add_argument("--out", type=Path, help="keep the pictures here")
    arguments = parser.parse_args()
    chromium = os.environ.get("AGVIZ_CHROMIUM") or shutil.which("chromium")
    if chromium is None:
        sys.exit("there is no Chromium: install it, or let AGVIZ_CHROMIUM name it")
    if arguments.out is not None:
        arguments.out.mkdir(parents=True, exist_ok=True)
    print("| step | drawn by | smallest text | empty | height | CPU | SVG |")
    print("|---|---|---|---|---|---|---|")
    flags = ["--no-sandbox"] if os.geteuid() == 0 else []
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=flags)
        page = browser.new_page(viewport={"width": WIDTH, "height": 900})
        for name in arguments.names or [*STEPS, TWO_DEVICES, RANKS]:
            for who, drawing in pictures(name, Path(folder)):
                print(_row(page, name, who, drawing, arguments.out), flush=True)
        browser.close()
    os._exit(0)  # torch overflows the stack when it frees a deep graph that Python has seen


def _row(page: Page, name: str, who: str, drawing: Drawn, out: Path | None) -> str:
    if drawing.failure:
        return f"| {name} | {who} | {drawing.failure} | | | {drawing.cpu_s:.1f} s | |"
    png = None
    if out is not None:
        svg = out / f"{name}-{re.sub(' ', '-', who)}.svg"
        svg.write_bytes(drawing.svg)
        png = svg.with_suffix(".png")
    seen = see(page, drawing.svg, png)
    cells = [
        *(name, who, f"{seen.smallest_px:.1f} px", f"{seen.empty:.0%}"),
        *(f"{seen.height_px:,.0f} px", f"{drawing.cpu_s:.1f} s"),
        f"{len(drawing.svg) / 1000:,.0f} kB",
    ]
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
