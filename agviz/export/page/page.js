"use strict";
(() => {
  const GAP = 36; // points between what is left when what lay between is folded
  const LEAST = 18; // points between a folded module and what is next to it
  const PROXY = 26; // height of a folded module
  const TITLE = 22; // height of a module's title
  const MANY = 120; // boxes above which modules are folded at first
  const FEW = 8; // boxes that are left in any case
  const NS = "http://www.w3.org/2000/svg";

  const data = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);
  const picture = byId("picture");
  const svg = picture.querySelector("svg");
  const root = svg.querySelector("g.graph");
  const make = (name, attributes, parent, before = null) => {
    const made = document.createElementNS(NS, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    parent.insertBefore(made, before);
    return made;
  };
  const bounds = (element) => {
    const { x, y, width, height } = element.getBBox();
    return { x, y, w: width, h: height };
  };

  // ---- what is there -------------------------------------------------------------------------

  const boxes = new Map();
  for (const group of root.querySelectorAll("g.node")) {
    boxes.set(group.id, { group, at: bounds(group), frame: 0, lines: [] });
  }
  for (const { group } of boxes.values()) root.append(group); // above the edges
  const frames = new Map();
  for (const [number, parent, path] of data.frames) {
    const group = byId(`frame-${number}`);
    const shape = group.querySelector("path, polygon");
    const at = bounds(shape);
    shape.remove();
    const title = group.querySelector("text");
    const box = make("rect", { class: "frame", rx: 8 }, group, group.firstChild);
    frames.set(number, {
      number, parent, path, group, at, box, title, name: title.textContent, folded: false,
      nodes: 0, done: 0,
    });
  }
  const lines = data.lines.filter((line) => byId(`a_${line.id}`));
  const itemLines = new Map();
  for (const line of lines) {
    line.group = byId(`a_${line.id}`);
    line.about = line.group.querySelector("a").getAttribute("xlink:title") || "";
    line.text = `${line.about}\n${line.group.textContent}`.toLowerCase();
    const box = boxes.get(line.box);
    box.frame = line.frame;
    box.lines.push(line);
    const own = bounds(line.group);
    line.cover = make("rect", {
      class: "cover", x: box.at.x, y: own.y, width: box.at.w, height: own.h,
    }, box.group);
    if (!line.id.includes("-use-")) itemLines.set(line.item, line);
    for (let f = frames.get(line.frame); f; f = frames.get(f.parent)) f.nodes += line.nodes;
  }
  const numbersOf = (text) => text.match(/-?\d+(?:\.\d+)?/g).map(Number);
  const links = data.links.map(([id, tail, head]) => {
    const group = byId(id);
    const path = group.querySelector("path");
    const arrow = group.querySelector("polygon");
    const label = group.querySelector("text");
    return {
      group, tail: boxes.get(tail), head: boxes.get(head), path, arrow, label,
      d: path.getAttribute("d"), points: numbersOf(arrow.getAttribute("points")),
      labelAt: label && bounds(label),
    };
  });
  root.querySelector("polygon").remove(); // the paper
  const heading = [...root.children].filter((child) => !child.matches("g.node, g.edge, g.cluster, title"));
  const headingAt = heading.map(bounds).filter((at) => at.h);

  // ---- folding -------------------------------------------------------------------------------

  const outermostFolded = (number) => {
    let found = null;
    for (let f = frames.get(number); f; f = frames.get(f.parent)) if (f.folded) found = f;
    return found;
  };

  /** A map from old places to new ones that closes what lies between intervals, and opens what is
   * too narrow beside proxies. */
  const closing = (intervals, proxies = new Set()) => {
    const sorted = intervals.sort((a, b) => a[0] - b[0]);
    const stops = [];
    let shift = 0;
    let end = null;
    let isProxy = false;
    for (const interval of sorted) {
      const [from, to] = interval;
      isProxy ||= proxies.has(interval);
      if (end !== null && isProxy && from >= end && from < end + LEAST) {
        stops.push([end, shift]);
        shift += LEAST - (from - end);
        stops.push([from, shift]);
      } else if (end !== null && from > end + GAP) {
        stops.push([end + GAP / 2, shift]);
        shift -= from - end - GAP;
        stops.push([from - GAP / 2, shift]);
      }
      isProxy = proxies.has(interval);
      end = end === null ? to : Math.max(end, to);
    }
    return (value) => {
      let before = 0;
      let low = 0;
      let high = stops.length;
      while (low < high) {
        const middle = (low + high) >> 1;
        if (stops[middle][0] <= value) low = middle + 1; else high = middle;
      }
      if (!low) return value + before;
      before = stops[low - 1][1];
      if (low < stops.length && low % 2) { // in what is closed
        const [start, from] = stops[low - 1];
        const [stop, to] = stops[low];
        before = from + (to - from) * ((value - start) / (stop - start));
      }
      return value + before;
    };
  };

  const name = (frame, done) => {
    const nodes = `${frame.nodes.toLocaleString("en")} nodes`;
    const far = data.ran ? ` · ${done.toLocaleString("en")} done` : "";
    frame.title.textContent = frame.folded ? `▸ ${frame.path} · ${nodes}${far}` : `▾ ${frame.name}`;
  };

  let extent = { x: 0, y: 0, w: 1, h: 1 };
  const layOut = () => {
    const across = [];
    const proxies = new Set();
    const down = headingAt.map((at) => [at.y, at.y + at.h]);
    const shown = [];
    for (const frame of frames.values()) {
      frame.hidden = frame.parent ? outermostFolded(frame.parent) : null;
      frame.group.classList.toggle("gone", Boolean(frame.hidden));
      frame.group.classList.toggle("folded", frame.folded);
      if (frame.hidden) continue;
      const { x, y, w, h } = frame.at;
      frame.title.setAttribute("aria-expanded", String(!frame.folded));
      if (frame.folded) {
        name(frame, frame.nodes); // the longest that it may become
        const width = frame.title.getBBox().width + 24;
        frame.proxy = { x: x + w / 2 - width / 2, y, w: width, h: PROXY };
        across.push([frame.proxy.x, frame.proxy.x + width]);
        proxies.add(down[down.push([y, y + PROXY]) - 1]);
      } else {
        across.push([x, x + 8], [x + w - 8, x + w]);
        down.push([y, y + TITLE], [y + h - 8, y + h]);
      }
      name(frame, frame.done);
      shown.push(frame);
    }
    for (const box of boxes.values()) {
      box.proxy = outermostFolded(box.frame);
      box.group.classList.toggle("gone", Boolean(box.proxy));
      if (box.proxy) continue;
      across.push([box.at.x, box.at.x + box.at.w]);
      down.push([box.at.y, box.at.y + box.at.h]);
    }
    const mapX = closing(across);
    const mapY = closing(down, proxies);
    const moved = (at) => ({ x: mapX(at.x), y: mapY(at.y), w: at.w, h: at.h });
    let right = 0;
    let bottom = -Infinity;
    let left = Infinity;
    let top = Infinity;
    const reach = ({ x, y, w, h }) => {
      left = Math.min(left, x); right = Math.max(right, x + w);
      top = Math.min(top, y); bottom = Math.max(bottom, y + h);
    };
    for (const box of boxes.values()) {
      if (box.proxy) continue;
      box.now = moved(box.at);
      box.group.setAttribute("transform", `translate(${box.now.x - box.at.x} ${box.now.y - box.at.y})`);
      reach(box.now);
    }
    for (const frame of shown) {
      const { x, y, w, h } = frame.at;
      const now = frame.folded ? moved(frame.proxy)
        : { x: mapX(x), y: mapY(y), w: mapX(x + w) - mapX(x), h: mapY(y + h) - mapY(y) };
      frame.now = now;
      for (const [key, value] of [["x", now.x], ["y", now.y], ["width", now.w], ["height", now.h]]) {
        frame.box.setAttribute(key, value);
      }
      frame.title.setAttribute("text-anchor", "start");
      frame.title.setAttribute("x", now.x + 10);
      frame.title.setAttribute("y", now.y + 17);
      reach(now);
    }
    const place = (box) => (box.proxy ? box.proxy.now : box.now);
    for (const link of links) {
      const gone = link.tail.proxy && link.tail.proxy === link.head.proxy;
      link.group.classList.toggle("gone", Boolean(gone));
      if (gone) continue;
      const bent = Boolean(link.tail.proxy || link.head.proxy);
      if (link.label) link.label.classList.toggle("gone", bent);
      if (!bent) {
        let even = false;
        link.path.setAttribute("d", link.d.replace(/-?\d+(?:\.\d+)?/g, (number) => {
          even = !even;
          return (even ? mapX : mapY)(Number(number)).toFixed(2);
        }));
        link.arrow.setAttribute("points", arrowAt(link.points, mapX, mapY));
        if (link.label) {
          const { x, y } = moved(link.labelAt);
          link.label.setAttribute("transform", `translate(${x - link.labelAt.x} ${y - link.labelAt.y})`);
        }
        continue;
      }
      const from = place(link.tail);
      const to = place(link.head);
      const x1 = from.x + from.w / 2;
      const y1 = from.y + from.h;
      const x2 = to.x + to.w / 2;
      const y2 = to.y - 7;
      const bend = Math.max(0, (y2 - y1) / 2);
      link.path.setAttribute("d", `M${x1},${y1}C${x1},${y1 + bend} ${x2},${y2 - bend} ${x2},${y2}`);
      link.arrow.setAttribute("points", `${x2 - 3},${y2} ${x2},${y2 + 7} ${x2 + 3},${y2} ${x2 - 3},${y2}`);
    }
    for (const at of headingAt) reach(at);
    extent = { x: left - 16, y: top - 16, w: right - left + 32, h: bottom - top + 32 };
  };

  /** An arrow keeps its shape: it moves with its tip. */
  const arrowAt = (points, mapX, mapY) => {
    const [tipX, tipY] = [points[2], points[3]];
    const [dx, dy] = [mapX(tipX) - tipX, mapY(tipY) - tipY];
    return points.map((value, i) => (value + (i % 2 ? dy : dx)).toFixed(2)).join(" ");
  };

  const fold = (frame, folded) => {
    const before = frame.now;
    frame.folded = folded;
    layOut();
    if (before && frame.now) {
      view.x += frame.now.x - before.x;
      view.y += frame.now.y - before.y;
    }
    look();
  };
  const foldAll = (folded) => {
    for (const frame of frames.values()) frame.folded = folded;
    layOut();
    fit();
  };
  for (const frame of frames.values()) {
    frame.title.classList.add("title");
    frame.title.setAttribute("tabindex", "0");
    frame.title.setAttribute("role", "button");
    frame.title.setAttribute("aria-label", `module ${frame.path}`);
    const toggle = () => fold(frame, !frame.folded);
    frame.title.addEventListener("click", toggle);
    frame.box.addEventListener("click", () => { if (frame.folded) toggle(); });
    frame.title.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") { event.preventDefault(); toggle(); }
    });
  }

  // ---- looking -------------------------------------------------------------------------------

  root.setAttribute("transform", "");
  svg.removeAttribute("width");
  svg.removeAttribute("height");
  svg.setAttribute("role", "group");
  const view = { x: 0, y: 0, scale: 1 }; // the upper left corner, and pixels per point
  const look = () => {
    const { clientWidth, clientHeight } = picture;
    svg.setAttribute("viewBox",
      `${view.x} ${view.y} ${clientWidth / view.scale} ${clientHeight / view.scale}`);
  };
  const fit = () => {
    const { clientWidth, clientHeight } = picture;
    const whole = Math.min(clientWidth / extent.w, clientHeight / extent.h);
    view.scale = Math.min(1.4, whole > 0.6 ? whole : clientWidth / extent.w);
    view.x = extent.x - Math.max(0, (clientWidth / view.scale - extent.w) / 2);
    view.y = extent.y;
    look();
  };
  const zoom = (factor, x = picture.clientWidth / 2, y = picture.clientHeight / 2) => {
    const scale = Math.min(8, Math.max(0.02, view.scale * factor));
    view.x += x / view.scale - x / scale;
    view.y += y / view.scale - y / scale;
    view.scale = scale;
    look();
  };
  const centre = (at) => {
    view.scale = Math.max(view.scale, 0.7);
    view.x = at.x + at.w / 2 - picture.clientWidth / view.scale / 2;
    view.y = at.y + at.h / 2 - picture.clientHeight / view.scale / 2;
    look();
  };
  picture.addEventListener("wheel", (event) => {
    event.preventDefault();
    const at = picture.getBoundingClientRect();
    zoom(Math.exp(-event.deltaY * 0.0015), event.clientX - at.left, event.clientY - at.top);
  }, { passive: false });
  let drag = null;
  picture.addEventListener("pointerdown", (event) => {
    if (event.button === 0) drag = { x: event.clientX, y: event.clientY, far: false };
  });
  window.addEventListener("pointermove", (event) => {
    if (!drag) return;
    const dx = event.clientX - drag.x;
    const dy = event.clientY - drag.y;
    if (!drag.far && Math.hypot(dx, dy) < 4) return;
    drag = { x: event.clientX, y: event.clientY, far: true };
    picture.classList.add("dragged");
    view.x -= dx / view.scale;
    view.y -= dy / view.scale;
    look();
  });
  window.addEventListener("pointerup", () => {
    picture.classList.remove("dragged");
    const far = drag && drag.far;
    drag = null;
    if (far) window.addEventListener("click", (event) => event.stopPropagation(), { capture: true, once: true });
  });
  window.addEventListener("resize", () => { look(); drawLanes(); });

  // ---- a node --------------------------------------------------------------------------------

  const about = byId("about");
  const tell = (line) => {
    about.hidden = !line;
    if (line) about.textContent = line.about;
  };
  for (const line of lines) line.group.addEventListener("click", () => tell(line));
  svg.addEventListener("click", (event) => { if (!event.target.closest("g.node")) tell(null); });

  // ---- searching -----------------------------------------------------------------------------

  const search = byId("search");
  let hits = [];
  let current = -1;
  const mark = () => {
    for (const line of lines) {
      line.cover.classList.toggle("hit", hits.includes(line));
      line.cover.classList.toggle("now", hits[current] === line);
    }
    byId("found").textContent = !search.value ? "" : hits.length ? `${current + 1} of ${hits.length}` : "nothing";
  };
  const go = (place) => {
    current = hits.length ? (place + hits.length) % hits.length : -1;
    mark();
    const line = hits[current];
    if (!line) return;
    let opened = false;
    for (let f = frames.get(line.frame); f; f = frames.get(f.parent)) {
      opened ||= f.folded;
      f.folded = false;
    }
    if (opened) layOut();
    const box = boxes.get(line.box);
    const own = line.cover.getBBox();
    centre({ x: box.now.x, y: box.now.y + own.y - box.at.y, w: box.now.w, h: own.height });
    tell(line);
  };
  search.addEventListener("input", () => {
    const wanted = search.value.toLowerCase();
    hits = wanted ? lines.filter((line) => line.text.includes(wanted)) : [];
    go(0);
  });
  search.addEventListener("keydown", (event) => {
    if (event.key === "Enter") go(current + (event.shiftKey ? -1 : 1));
    if (event.key === "Escape") { search.value = ""; hits = []; go(0); tell(null); picture.focus(); }
  });

  // ---- replay --------------------------------------------------------------------------------

  const slider = byId("slider");
  const runs = data.runs;
  const last = Math.max(1, ...runs.map((run) => run[1] + (run[2] || 0)));
  const duration = (ns) => {
    // As agviz/words/units.py writes it: three significant digits.
    for (const [unit, size] of [["s", 1e9], ["ms", 1e6], ["µs", 1e3]]) {
      const value = ns / size;
      if (value < 0.9995) continue;
      return `${value.toFixed(value < 9.995 ? 2 : value < 99.95 ? 1 : 0)} ${unit}`;
    }
    return `${ns} ns`;
  };
  const moment = (position) => {
    if (position <= 0) return -1;
    return position > runs.length ? Infinity : runs[position - 1][1];
  };
  const statusAt = (line, now) => {
    if (line.start === null || line.start > now) return "waiting";
    return line.end !== null && line.end <= now ? "done" : "running";
  };
  const replay = () => {
    const position = Number(slider.value);
    const now = moment(position);
    for (const frame of frames.values()) frame.done = 0;
    const counts = { waiting: 0, ready: 0, running: 0, done: 0 };
    for (const line of lines) line.status = statusAt(line, now);
    for (const line of lines) {
      const isReady = line.status === "waiting" && line.start !== null && now >= 0
        && line.fed.every((item) => !itemLines.has(item) || itemLines.get(item).status === "done");
      const status = isReady ? "ready" : line.status;
      line.cover.dataset.status = status;
      counts[status] += 1;
      if (status === "done") {
        for (let f = frames.get(line.frame); f; f = frames.get(f.parent)) f.done += line.nodes;
      }
    }
    for (const frame of frames.values()) {
      name(frame, frame.done);
    }
    const run = runs[position - 1];
    byId("when").textContent = position <= 0 ? "before the first node" : run
      ? `${run[0]} ${run[4]} starts after ${duration(run[1])} · ${counts.done} done, ${counts.running} running, ${counts.ready} ready`
      : `all ${runs.length} nodes, ${duration(last)}`;
    slider.setAttribute("aria-valuetext", byId("when").textContent);
    drawLanes();
  };
  const move = (by) => {
    slider.value = Number(slider.value) + by;
    replay();
  };
  const lanes = byId("lanes");
  const ROW = 18;
  const NAMES = 120;
  const drawLanes = () => {
    if (!runs.length) return;
    const width = lanes.clientWidth;
    const height = data.lanes.length * ROW + 6;
    const ratio = window.devicePixelRatio || 1;
    lanes.width = width * ratio;
    lanes.height = height * ratio;
    lanes.style.height = `${height}px`;
    const draw = lanes.getContext("2d");
    const style = getComputedStyle(document.documentElement);
    draw.scale(ratio, ratio);
    draw.font = "12px Helvetica, Arial, sans-serif";
    draw.textBaseline = "middle";
    const at = (ns) => NAMES + (Math.min(ns, last) / last) * (width - NAMES - 12);
    const now = moment(Number(slider.value));
    data.lanes.forEach((lane, place) => {
      draw.fillStyle = style.getPropertyValue("--ink");
      draw.fillText(`${lane.mark} ${lane.name}`, 12, place * ROW + ROW / 2, NAMES - 16);
      draw.fillStyle = style.getPropertyValue("--shade");
      draw.fillRect(NAMES, place * ROW + 2, width - NAMES - 12, ROW - 4);
    });
    for (const [, start, taken, lane] of runs) {
      draw.fillStyle = data.lanes[lane].colour;
      draw.globalAlpha = start > now ? 0.3 : 1;
      const from = at(start);
      const to = at(taken === null ? last : start + taken);
      draw.fillRect(from, lane * ROW + 2, Math.max(1, to - from), ROW - 4);
    }
    draw.globalAlpha = 1;
    if (now >= 0 && now < Infinity) {
      draw.fillStyle = style.getPropertyValue("--alarm");
      draw.fillRect(at(now) - 1, 0, 2, height);
    }
  };
  lanes.addEventListener("click", (event) => {
    const place = event.clientX - lanes.getBoundingClientRect().left - NAMES;
    const time = (place / (lanes.clientWidth - NAMES - 12)) * last;
    slider.value = runs.filter((run) => run[1] <= time).length;
    replay();
  });

  // ---- keys and buttons ----------------------------------------------------------------------

  const pressed = {
    "/": () => search.focus(), "+": () => zoom(1.25), "=": () => zoom(1.25), "-": () => zoom(0.8),
    0: fit, f: () => foldAll(true), u: () => foldAll(false),
    ArrowLeft: () => move(-1), ArrowRight: () => move(1),
    ArrowUp: () => { view.y -= 80 / view.scale; look(); },
    ArrowDown: () => { view.y += 80 / view.scale; look(); },
  };
  document.addEventListener("keydown", (event) => {
    const typing = event.target.matches("input");
    if (typing || event.ctrlKey || event.metaKey || event.altKey || !(event.key in pressed)) return;
    event.preventDefault();
    pressed[event.key]();
  });
  byId("zoom-in").addEventListener("click", () => zoom(1.25));
  byId("zoom-out").addEventListener("click", () => zoom(0.8));
  byId("fit").addEventListener("click", fit);
  byId("fold-all").addEventListener("click", () => foldAll(true));
  byId("unfold-all").addEventListener("click", () => foldAll(false));
  byId("back").addEventListener("click", () => move(-1));
  byId("on").addEventListener("click", () => move(1));
  slider.addEventListener("input", replay);

  const depth = (frame) => (frame ? 1 + depth(frames.get(frame.parent)) : 0);
  const deepestFirst = [...frames.values()].sort((a, b) => depth(b) - depth(a) || b.number - a.number);
  const visible = () => [...boxes.values()].filter((box) => !outermostFolded(box.frame)).length;
  for (const frame of deepestFirst) {
    if (visible() <= MANY) break;
    frame.folded = true;
    if (visible() < FEW) frame.folded = false;
  }
  if (data.ran && runs.length) {
    byId("replay").hidden = false;
    slider.max = runs.length + 1;
    slider.value = runs.length + 1;
    replay();
  }
  layOut();
  fit();
  document.body.dataset.ready = "true";
})();
