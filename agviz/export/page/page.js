"use strict";
(() => {
  const GAP = 36; // points between what is left when what lay between is folded
  const LEAST = 18; // points between a folded module and what is next to it
  const PROXY = 26; // height of a folded module
  const TITLE = 22; // height of a module's title
  const MANY = 250; // lines above which modules are folded at first
  const FEW = 8; // boxes that are left in any case
  const LENGTH = 300; // steps of a whole replay
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
  const numbersOf = (text) => text.match(/-?\d+(?:\.\d+)?/g).map(Number);
  /** Around a polygon or a path, as it is written: to ask the browser would have it lay out every
   * text of the picture, most of which are folded away at first. */
  const bounds = (shape) => {
    const numbers = numbersOf(shape.getAttribute("points") || shape.getAttribute("d"));
    let [left, top, right, bottom] = [Infinity, Infinity, -Infinity, -Infinity];
    for (let i = 0; i < numbers.length; i += 2) {
      left = Math.min(left, numbers[i]); right = Math.max(right, numbers[i]);
      top = Math.min(top, numbers[i + 1]); bottom = Math.max(bottom, numbers[i + 1]);
    }
    return { x: left, y: top, w: right - left, h: bottom - top };
  };
  const pen = document.createElement("canvas").getContext("2d");
  const widthOf = (text, size) => {
    pen.font = `${size}px Helvetica, Arial, sans-serif`;
    return pen.measureText(text).width;
  };

  // ---- what is there -------------------------------------------------------------------------

  const boxes = new Map();
  for (const group of root.querySelectorAll("g.node")) {
    boxes.set(group.id, { group, at: bounds(group.querySelector("polygon")), frame: 0, lines: [] });
  }
  // What is folded away is taken out: a browser works on what is there, be it hidden or not.
  const below = make("g", { id: "links" }, root);
  const above = make("g", { id: "boxes" }, root);
  const keep = (group, within, isShown) => {
    if (!isShown) group.remove(); else if (group.parentNode !== within) within.append(group);
  };
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
    line.members = [];
    line.group = byId(`a_${line.id}`);
    line.at = bounds(line.group.querySelector("polygon"));
    line.about = line.group.querySelector("a").getAttribute("xlink:title") || "";
    line.text = `${line.about}\n${line.group.textContent}`.toLowerCase();
    const box = boxes.get(line.box);
    box.frame = line.frame;
    box.lines.push(line);
    line.cover = make("rect", {
      class: "cover", x: box.at.x, y: line.at.y, width: box.at.w, height: line.at.h,
    }, box.group);
    if (!line.id.includes("-use-")) itemLines.set(line.item, line);
    for (let f = frames.get(line.frame); f; f = frames.get(f.parent)) f.nodes += line.nodes;
  }
  // All nodes, in columns; those that ran come first, in the order of their starts.
  const nodes = data.nodes;
  const places = new Map(nodes.index.map((index, place) => [index, place]));
  for (let place = 1; place < nodes.start.length; place++) nodes.start[place] += nodes.start[place - 1];
  const lineOf = [];
  for (const [number, count] of nodes.line) {
    const own = data.lines[number];
    const line = own && (own.members ? own : itemLines.get(own.item));
    for (let i = 0; i < count; i++) {
      if (line) line.members.push(lineOf.length);
      lineOf.push(line);
    }
  }
  const word = (column, place) => nodes.words[nodes[column][place]];
  const turn = (place) => (place < nodes.ran ? nodes.turn[place] : "");
  const nameOf = (place) => `${turn(place)} ${word("name", place)}`.trim();

  const links = data.links.map(([id, tail, head]) => {
    const group = byId(id);
    const path = group.querySelector("path");
    const arrow = group.querySelector("polygon");
    const label = group.querySelector("text");
    return {
      group, tail: boxes.get(tail), head: boxes.get(head), path, arrow, label,
      d: path.getAttribute("d"), points: numbersOf(arrow.getAttribute("points")),
      labelAt: label && { x: Number(label.getAttribute("x")), y: Number(label.getAttribute("y")) },
    };
  });
  root.querySelector("polygon").remove(); // the paper
  const heading = [...root.children].filter((child) => !child.matches("g.node, g.edge, g.cluster, title, #links, #boxes"));
  const headingAt = heading.flatMap((part) => [...part.querySelectorAll("text")].map((text) => {
    const size = Number(text.getAttribute("font-size"));
    const [x, y] = ["x", "y"].map((name) => Number(text.getAttribute(name)));
    return { x, y: y - size, w: widthOf(text.textContent, size), h: size * 1.3 };
  }));

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
        const width = widthOf(frame.title.textContent, 12) + 24;
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
      keep(box.group, above, !box.proxy);
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
      keep(link.group, below, !gone);
      if (gone) continue;
      const bent = Boolean(link.tail.proxy || link.head.proxy);
      if (link.label) link.label.classList.toggle("gone", bent);
      if (!bent) {
        link.path.setAttribute("d", pathAt(link.d, mapX, mapY));
        link.arrow.setAttribute("points", arrowAt(link.points, mapX, mapY));
        if (link.label) {
          const { x, y } = moved({ ...link.labelAt, w: 0, h: 0 });
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

  /** A curve, moved. Where parts of it move unlike others, because something beside it was folded, its
   * old bends would become kinks: then it is drawn anew through the ends of its old parts, and
   * leaves and arrives in its old directions. */
  const pathAt = (d, mapX, mapY) => {
    const old = numbersOf(d);
    const points = [];
    for (let i = 0; i < old.length; i += 2) {
      points.push({ x: mapX(old[i]), y: mapY(old[i + 1]), dx: mapX(old[i]) - old[i], dy: mapY(old[i + 1]) - old[i + 1] });
    }
    const write = ({ x, y }) => `${x.toFixed(2)},${y.toFixed(2)}`;
    const first = points[0];
    const last = points[points.length - 1];
    const isRigid = points.every(({ dx, dy }) => Math.abs(dx - first.dx) + Math.abs(dy - first.dy) < 1);
    if (isRigid || last.y <= first.y) {
      return `M${write(first)}C${points.slice(1).map(write).join(" ")}`;
    }
    const through = [first];
    for (let i = 3; i < points.length - 1; i += 3) {
      const before = through[through.length - 1];
      if (points[i].y > before.y + LEAST && points[i].y < last.y - LEAST) through.push(points[i]);
    }
    through.push(last);
    const direction = (from, to) => {
      const [x, y] = [old[to] - old[from], old[to + 1] - old[from + 1]];
      const length = Math.hypot(x, y) || 1;
      return [x / length, y / length];
    };
    // x as a function of y between them, monotone where they are (Fritsch and Carlson, as in PCHIP)
    const steep = through.slice(1).map((b, i) => (b.x - through[i].x) / (b.y - through[i].y));
    const slopeAt = (i) => {
      const [m, n] = [steep[i - 1], steep[i]];
      return m * n > 0 ? (2 * m * n) / (m + n) : 0;
    };
    const leaves = direction(0, 2);
    const arrives = direction(old.length - 4, old.length - 2);
    let path = `M${write(first)}`;
    for (let i = 1; i < through.length; i++) {
      const [a, b] = [through[i - 1], through[i]];
      const [w, h] = [Math.abs(b.x - a.x) / 2, (b.y - a.y) / 2];
      const along = ([x, y]) => [x * Math.max(w, h), y * h];
      const out = i === 1 ? along(leaves) : [slopeAt(i - 1) * h, h];
      const into = i === through.length - 1 ? along(arrives) : [slopeAt(i) * h, h];
      const control = [{ x: a.x + out[0], y: a.y + out[1] }, { x: b.x - into[0], y: b.y - into[1] }];
      path += `C${control.map(write).join(" ")} ${write(b)}`;
    }
    return path;
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
  const depthOf = (frame) => (frame ? 1 + depthOf(frames.get(frame.parent)) : 0);
  const deepest = Math.max(0, ...[...frames.values()].map(depthOf));
  const foldTo = (depth) => {
    byId("depth").value = Math.min(depth, deepest);
    for (const frame of frames.values()) frame.folded = depthOf(frame) > depth;
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
  const fingers = new Map(); // where each pointer is that is down
  let isFar = false;
  const spread = () => {
    const [a, b] = [...fingers.values()];
    return { x: (a.x + b.x) / 2, y: (a.y + b.y) / 2, apart: Math.hypot(a.x - b.x, a.y - b.y) };
  };
  picture.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    if (!fingers.size) isFar = false;
    fingers.set(event.pointerId, { x: event.clientX, y: event.clientY });
  });
  window.addEventListener("pointermove", (event) => {
    const from = fingers.get(event.pointerId);
    if (!from) return;
    if (fingers.size === 1 && !isFar && Math.hypot(event.clientX - from.x, event.clientY - from.y) < 4) return;
    const before = fingers.size > 1 ? spread() : { ...from, apart: 1 };
    from.x = event.clientX;
    from.y = event.clientY;
    const after = fingers.size > 1 ? spread() : { ...from, apart: 1 };
    isFar = true;
    picture.classList.add("dragged");
    const at = picture.getBoundingClientRect();
    view.x -= (after.x - before.x) / view.scale;
    view.y -= (after.y - before.y) / view.scale;
    zoom(after.apart / (before.apart || 1), after.x - at.left, after.y - at.top);
  });
  const lift = (event) => {
    if (!fingers.delete(event.pointerId) || fingers.size) return;
    picture.classList.remove("dragged");
    if (!isFar) return;
    const swallow = (click) => click.stopPropagation();
    window.addEventListener("click", swallow, { capture: true, once: true });
    setTimeout(() => window.removeEventListener("click", swallow, { capture: true }), 0);
  };
  window.addEventListener("pointerup", lift);
  window.addEventListener("pointercancel", lift);
  window.addEventListener("resize", look);

  // ---- a node --------------------------------------------------------------------------------

  const about = byId("about");
  const inside = byId("inside");
  const LISTED = 200; // nodes of a line that are listed at once
  let listed = { line: null, from: 0, place: -1 };
  const list = (line, from, place) => {
    listed = { line, from, place };
    const shown = line.members.slice(from, from + LISTED);
    inside.replaceChildren(...shown.map((each) => {
      const entry = document.createElement("button");
      entry.type = "button";
      const where = word("parameter", each) || word("module", each);
      const took = each < nodes.ran && nodes.took[each] !== null ? duration(nodes.took[each]) : "";
      entry.textContent = [nameOf(each), where, took].filter(Boolean).join(" · ");
      if (each === place) entry.setAttribute("aria-current", "true");
      entry.addEventListener("click", () => { list(line, from, each); seek(each); });
      const row = document.createElement("li");
      row.append(entry);
      return row;
    }));
    const current = inside.querySelector("[aria-current]");
    if (current) current.scrollIntoView({ block: "nearest" });
    byId("pages").hidden = line.members.length <= LISTED;
    byId("earlier").disabled = from <= 0;
    byId("later").disabled = from + LISTED >= line.members.length;
  };
  const turnPage = (by) => list(listed.line, Math.max(0, listed.from + by * LISTED), listed.place);
  byId("earlier").addEventListener("click", () => turnPage(-1));
  byId("later").addEventListener("click", () => turnPage(1));
  const describe = (line, place = -1) => {
    about.hidden = !line;
    if (!line) return;
    byId("said").textContent = line.about;
    const many = line.members.length > 1;
    inside.hidden = !many;
    byId("pages").hidden = true;
    if (!many) return;
    const at = Math.max(0, line.members.indexOf(place));
    list(line, Math.max(0, Math.min(at - LISTED / 2, line.members.length - LISTED)), place);
  };
  /** Open what hides a line. */
  const reveal = (line) => {
    let opened = false;
    for (let f = frames.get(line.frame); f; f = frames.get(f.parent)) {
      opened ||= f.folded;
      f.folded = false;
    }
    if (opened) layOut();
  };
  const whereIs = (line) => {
    const box = boxes.get(line.box);
    if (box.proxy) return box.proxy.now;
    return { x: box.now.x, y: box.now.y + line.at.y - box.at.y, w: box.now.w, h: line.at.h };
  };
  const isSeen = ({ x, y, w, h }) => {
    const [right, bottom] = [picture.clientWidth, picture.clientHeight].map((size) => size / view.scale);
    return x >= view.x && y >= view.y && x + w <= view.x + right && y + h <= view.y + bottom;
  };
  const show = (at) => { if (!isSeen(at)) centre(at); };
  for (const frame of frames.values()) {
    frame.title.addEventListener("focus", () => show({ ...frame.now, w: Math.min(frame.now.w, 160), h: TITLE }));
  }

  // One line can be reached with the tab key, the others from there.
  let focused = lines[0];
  const focus = (line) => {
    if (focused) focused.group.setAttribute("tabindex", "-1");
    focused = line;
    line.group.setAttribute("tabindex", "0");
  };
  const inOrder = [...lines].sort((a, b) => {
    const [from, to] = [boxes.get(a.box).at, boxes.get(b.box).at];
    return from.y - to.y || from.x - to.x || a.at.y - b.at.y;
  });
  const step = (by) => {
    const open = inOrder.filter((line) => !boxes.get(line.box).proxy);
    const at = open.indexOf(focused);
    const line = open[Math.min(Math.max(at + by, 0), open.length - 1)];
    if (!line) return;
    focus(line);
    line.group.focus({ preventScroll: true });
  };
  for (const line of lines) {
    line.group.setAttribute("tabindex", line === focused ? "0" : "-1");
    line.group.setAttribute("role", "group");
    line.group.setAttribute("aria-label", line.about.split("\n").slice(0, 2).join(", ") || line.group.textContent.trim());
    line.group.addEventListener("click", () => { focus(line); describe(line); });
    line.group.addEventListener("focus", () => { focus(line); show(whereIs(line)); describe(line); });
  }
  svg.addEventListener("click", (event) => { if (!event.target.closest("g.node")) describe(null); });

  // ---- searching -----------------------------------------------------------------------------

  const search = byId("search");
  let hits = []; // lines, and places of nodes that share a line with others
  let current = -1;
  const hitLine = (hit) => (typeof hit === "number" ? lineOf[hit] : hit);
  const mark = () => {
    const found = new Set(hits.map(hitLine));
    const now = current < 0 ? null : hitLine(hits[current]);
    for (const line of lines) {
      line.cover.classList.toggle("hit", found.has(line));
      line.cover.classList.toggle("now", now === line);
    }
    byId("found").textContent = !search.value ? "" : hits.length
      ? `${(current + 1).toLocaleString("en")} of ${hits.length.toLocaleString("en")}` : "nothing";
  };
  const go = (place) => {
    current = hits.length ? (place + hits.length) % hits.length : -1;
    mark();
    if (current < 0) return;
    const line = hitLine(hits[current]);
    reveal(line);
    centre(whereIs(line));
    describe(line, typeof hits[current] === "number" ? hits[current] : -1);
  };
  const find = (wanted) => {
    if (!wanted) return [];
    const fits = nodes.words.map((text) => text.toLowerCase().includes(wanted));
    const within = (place) => fits[nodes.name[place]] || fits[nodes.module[place]]
      || fits[nodes.parameter[place]] || String(turn(place)) === wanted;
    const found = [];
    for (const line of lines) {
      const held = line.members.length > 1 ? line.members.filter(within) : [];
      if (held.length) for (const place of held) found.push(place);
      else if (line.text.includes(wanted)) found.push(line);
    }
    return found;
  };
  search.addEventListener("input", () => {
    hits = find(search.value.toLowerCase());
    go(0);
  });
  search.addEventListener("keydown", (event) => {
    if (event.key === "Enter") go(current + (event.shiftKey ? -1 : 1));
    if (event.key === "Escape") { search.value = ""; hits = []; go(0); describe(null); picture.focus(); }
  });

  // ---- replay --------------------------------------------------------------------------------

  const slider = byId("slider");
  const ran = nodes.ran;
  const ends = nodes.start.map((start, place) => (nodes.took[place] === null ? Infinity : start + nodes.took[place]));
  const last = ends.reduce((most, end) => (end < Infinity ? Math.max(most, end) : most), 1);
  const sortedEnds = Float64Array.from(ends).sort();
  /** How many of sorted numbers are no larger than a value. */
  const upTo = (sorted, value) => {
    let low = 0;
    let high = sorted.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (sorted[middle] <= value) low = middle + 1; else high = middle;
    }
    return low;
  };
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
    return position > ran ? Infinity : nodes.start[position - 1];
  };
  const statusAt = (line, now) => {
    if (line.start === null || line.start > now) return "waiting";
    return line.end !== null && line.end <= now ? "done" : "running";
  };
  const replay = () => {
    const position = Number(slider.value);
    const now = moment(position);
    for (const frame of frames.values()) { frame.done = 0; frame.runs = false; }
    let ready = 0;
    for (const line of lines) line.status = statusAt(line, now);
    for (const line of lines) {
      const isReady = line.status === "waiting" && line.start !== null && now >= 0
        && line.fed.every((item) => !itemLines.has(item) || itemLines.get(item).status === "done");
      const status = isReady ? "ready" : line.status;
      line.cover.dataset.status = status;
      if (isReady) ready += 1;
      for (let f = frames.get(line.frame); f; f = frames.get(f.parent)) {
        if (status === "done") f.done += line.nodes;
        f.runs ||= status === "running";
      }
    }
    for (const frame of frames.values()) {
      name(frame, frame.done);
      frame.group.classList.toggle("runs", frame.runs);
    }
    const done = upTo(sortedEnds, now);
    const running = (now === Infinity ? ran : upTo(nodes.start, now)) - done;
    byId("when").textContent = position <= 0 ? "before the first node" : position <= ran
      ? `${nameOf(position - 1)} starts after ${duration(nodes.start[position - 1])} · ${done} done, ${running} running, ${ready} ready`
      : `all ${ran.toLocaleString("en")} nodes, ${duration(last)}`;
    slider.setAttribute("aria-valuetext", byId("when").textContent);
    if (playhead) {
      const x = xOf(Math.min(Math.max(now, 0), last));
      playhead.setAttribute("x1", x);
      playhead.setAttribute("x2", x);
      playhead.style.display = now < 0 || now === Infinity ? "none" : "";
    }
    const line = position > 0 && position <= ran ? lineOf[position - 1] : null;
    if (line && byId("follow").checked && moved) show(whereIs(line));
  };
  let moved = false; // whether the reader has moved in time
  const seek = (place) => {
    if (place >= ran) return;
    moved = true;
    slider.value = place + 1;
    replay();
  };
  const move = (by) => {
    moved = true;
    slider.value = Number(slider.value) + by;
    replay();
  };
  let playing = null;
  const play = (on = playing === null) => {
    clearInterval(playing);
    playing = null;
    byId("play").setAttribute("aria-pressed", String(on));
    byId("play").textContent = on ? "Pause" : "Play";
    if (!on) return;
    if (Number(slider.value) > ran) slider.value = 0;
    const by = Math.max(1, Math.round(ran / LENGTH));
    playing = setInterval(() => {
      move(by);
      if (Number(slider.value) > ran) play(false);
    }, 60);
  };

  // ---- threads in time -----------------------------------------------------------------------

  const drawn = byId("timeline").querySelector("svg");
  const playhead = drawn && make("line", { id: "playhead", y1: 0, y2: drawn.viewBox.baseVal.height }, drawn);
  /** Between [time, x] and [time, x]; two of one x have a cut between them. */
  const between = (from, to, value) => {
    const axis = data.axis;
    let at = 1;
    while (at < axis.length - 1 && axis[at][from] < value) at += 1;
    const [a, b] = [axis[at - 1], axis[at]];
    const share = b[from] === a[from] ? 0 : (value - a[from]) / (b[from] - a[from]);
    return a[to] + share * (b[to] - a[to]);
  };
  const xOf = (ns) => between(0, 1, ns);
  if (drawn) {
    drawn.addEventListener("click", (event) => {
      const bar = event.target.closest("[data-node]");
      if (bar) {
        const [task, node] = bar.dataset.node.split("-").map(Number);
        const place = places.get(data.first[task] + node);
        if (place === undefined) return;
        const line = lineOf[place];
        seek(place);
        if (!line) return;
        reveal(line);
        centre(whereIs(line));
        describe(line, place);
        return;
      }
      const at = drawn.getBoundingClientRect();
      const x = ((event.clientX - at.left) / at.width) * drawn.viewBox.baseVal.width;
      moved = true;
      slider.value = upTo(nodes.start, between(1, 0, x));
      replay();
    });
  }

  // ---- keys and buttons ----------------------------------------------------------------------

  const pressed = {
    "/": () => search.focus(), "+": () => zoom(1.25), "=": () => zoom(1.25), "-": () => zoom(0.8),
    0: fit, f: () => foldTo(0), u: () => foldTo(deepest), n: () => step(1), p: () => step(-1),
    " ": () => play(), Escape: () => describe(null),
    ArrowLeft: () => move(-1), ArrowRight: () => move(1),
    ArrowUp: () => { view.y -= 80 / view.scale; look(); },
    ArrowDown: () => { view.y += 80 / view.scale; look(); },
  };
  for (let depth = 1; depth < 10; depth++) pressed[depth] = () => foldTo(depth);
  document.addEventListener("keydown", (event) => {
    if (event.target.matches("input") || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === " " && event.target.matches("button, [role=button]")) return;
    if (event.target.closest("#inside, #timeline") && event.key.startsWith("Arrow")) return;
    if (event.key === "Enter" && event.target === focused?.group) {
      if (focused.members.length) seek(focused.members[0]);
      return;
    }
    if (!(event.key in pressed)) return;
    event.preventDefault();
    pressed[event.key]();
  });
  byId("zoom-in").addEventListener("click", () => zoom(1.25));
  byId("zoom-out").addEventListener("click", () => zoom(0.8));
  byId("fit").addEventListener("click", fit);
  byId("fold-all").addEventListener("click", () => foldTo(0));
  byId("unfold-all").addEventListener("click", () => foldTo(deepest));
  byId("depth").max = deepest;
  byId("depth").addEventListener("change", () => foldTo(Number(byId("depth").value)));
  byId("back").addEventListener("click", () => move(-1));
  byId("on").addEventListener("click", () => move(1));
  byId("play").addEventListener("click", () => play());
  slider.addEventListener("input", () => { moved = true; replay(); });

  const deepestFirst = [...frames.values()].sort((a, b) => depthOf(b) - depthOf(a) || b.number - a.number);
  const open = () => {
    const shown = [...boxes.values()].filter((box) => !outermostFolded(box.frame));
    return { boxes: shown.length, lines: shown.reduce((sum, box) => sum + box.lines.length, 0) };
  };
  for (const frame of deepestFirst) {
    if (open().lines <= MANY) break;
    frame.folded = true;
    if (open().boxes < FEW) frame.folded = false;
  }
  byId("depth").value = Math.max(0, ...[...frames.values()].filter((f) => !f.folded).map(depthOf));
  layOut();
  if (data.ran && ran) {
    byId("replay").hidden = false;
    slider.max = ran + 1;
    slider.value = ran + 1;
    replay();
  }
  fit();
  document.body.dataset.ready = "true";
})();
