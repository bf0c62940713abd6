// What the three widgets share: decoding, colours, and the link that makes them point at the same token.
// Text from documents only ever reaches the page through textContent.

const LINK = "cacheblend:token";

const root = element.querySelector(".cb-widget");

function make(tag, className = "", text = "") {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text) node.textContent = text;
  return node;
}

function decode(base64) {
  return Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
}

// Codes: 0 is "nothing here"; 1…255 hold the square root of value / top, signed ones around 128.
function fraction(code, kind) {
  if (kind === "signed") return (Math.sign(code - 128) * (code - 128) ** 2) / 127 ** 2;
  return ((code - 1) / 254) ** 2;
}

function position(part, kind, gamma) {
  if (kind === "signed") return 0.5 + 0.5 * Math.sign(part) * Math.abs(part) ** gamma;
  return kind === "share" ? part : part ** gamma;
}

function mix(colours, at) {
  const place = Math.min(Math.max(at, 0), 1) * (colours.length - 1);
  const low = Math.min(Math.floor(place), colours.length - 2);
  const channel = (hex, i) => parseInt(hex.slice(1 + 2 * i, 3 + 2 * i), 16);
  const blend = (i) => channel(colours[low], i) + (place - low) * (channel(colours[low + 1], i) - channel(colours[low], i));
  return [0, 1, 2].map((i) => Math.round(blend(i)));
}

function lookupTable(colours, kind, gamma) {
  const table = new Uint32Array(256);
  for (let code = 1; code < 256; code++) {
    const [r, g, b] = mix(colours, position(fraction(code, kind), kind, gamma));
    table[code] = (255 << 24) | (b << 16) | (g << 8) | r;
  }
  return table;
}

function number(value) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  const text = size < 0.001 ? size.toExponential(1) : String(Number(size.toPrecision(3)));
  return value < 0 ? `−${text}` : text;
}

function cellAt(edges, place) {
  let low = 0;
  let high = edges.length - 2;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (edges[middle] <= place) low = middle;
    else high = middle - 1;
  }
  return low;
}

// For each of `pixels` device pixels across view [from, to): the first and last cell it touches, or null outside.
function pixelCells(edges, from, to, pixels) {
  const last = edges[edges.length - 1];
  return Array.from({ length: pixels }, (_, p) => {
    const start = from + ((to - from) * p) / pixels;
    const stop = from + ((to - from) * (p + 1)) / pixels;
    if (stop <= edges[0] || start >= last) return null;
    return [cellAt(edges, start), cellAt(edges, Math.min(stop, last) - 1e-6)];
  });
}

function codeOf(part, kind) {
  const root = Math.sqrt(Math.abs(part));
  return kind === "signed" ? 128 + Math.round(127 * Math.sign(part) * root) : 1 + Math.round(254 * root);
}

// One code for the cells first…last of a row: the strongest where grid.keepsMaximum, else their mean.
function codeBetween(grid, offset, [first, last]) {
  const code = grid.codes[offset + first];
  if (first === last) return code;
  const there = [...grid.codes.subarray(offset + first, offset + last + 1)].filter((c) => c > 0);
  if (!there.length) return 0;
  if (grid.keepsMaximum) return Math.max(...there);
  return codeOf(there.reduce((sum, c) => sum + fraction(c, grid.kind), 0) / there.length, grid.kind);
}

// The picture of a matrix of codes at device resolution.
function paintCells(context, box, grid, table) {
  const { width, height } = box;
  if (width < 1 || height < 1) return;
  const image = context.createImageData(width, height);
  const pixels = new Uint32Array(image.data.buffer);
  const columns = pixelCells(grid.colEdges, ...grid.colView, width);
  const rows = pixelCells(grid.rowEdges, ...grid.rowView, height);
  const stride = grid.colEdges.length - 1;
  for (let y = 0; y < height; y++) {
    if (rows[y] === null) continue;
    const line = y * width;
    if (y > 0 && rows[y - 1] && rows[y - 1][0] === rows[y][0]) {
      pixels.copyWithin(line, line - width, line);
      continue;
    }
    const offset = rows[y][0] * stride;
    for (let x = 0; x < width; x++) {
      if (columns[x] !== null) pixels[line + x] = table[codeBetween(grid, offset, columns[x])];
    }
  }
  context.putImageData(image, box.left, box.top);
}

// A canvas sized to its element in device pixels, with a kept base picture so that hovering redraws only lines.
function makeCanvas(className, label) {
  const canvas = make("canvas", className);
  canvas.tabIndex = 0;
  canvas.setAttribute("role", "application");
  canvas.setAttribute("aria-roledescription", "heat map");
  canvas.setAttribute("aria-label", label);
  return { canvas, base: document.createElement("canvas") };
}

function fitCanvas(surface, cssWidth, cssHeight) {
  const ratio = window.devicePixelRatio || 1;
  for (const canvas of [surface.canvas, surface.base]) {
    canvas.width = Math.round(cssWidth * ratio);
    canvas.height = Math.round(cssHeight * ratio);
  }
  surface.canvas.style.height = `${cssHeight}px`;
  surface.ratio = ratio;
  return ratio;
}

function showBase(surface) {
  const context = surface.canvas.getContext("2d");
  context.setTransform(1, 0, 0, 1, 0, 0);
  context.clearRect(0, 0, surface.canvas.width, surface.canvas.height);
  context.drawImage(surface.base, 0, 0);
  context.setTransform(surface.ratio, 0, 0, surface.ratio, 0, 0);
  return context;
}

function pageColours() {
  const { color } = getComputedStyle(root);
  return { text: color, soft: color.replace("rgb(", "rgba(").replace(")", ", 0.74)") };
}

function segmentAt(prompt, token) {
  return prompt.segments.find((s) => token >= s.start && token < s.stop);
}

function describeToken(prompt, token) {
  const segment = segmentAt(prompt, token);
  const shown = prompt.tokens[token].replace(/\n/g, "⏎").replace(/\t/g, "⇥");
  return `token ${token} “${shown}” · ${segment.name}`;
}

// What everything points at, kept on the document so that a widget that appears later agrees.
function pointed(run) {
  const now = document.cacheblendToken;
  return now && now.run === run ? now : { run, token: null, query: null, locked: false };
}

function point(detail) {
  document.cacheblendToken = detail;
  document.dispatchEvent(new CustomEvent(LINK, { detail }));
}

function hover(run, token, query = null) {
  const now = pointed(run);
  if (now.locked || (now.token === token && now.query === query)) return;
  point({ run, token, query, locked: false });
}

function toggleLock(run, token, query = null) {
  const now = pointed(run);
  const isSame = now.locked && now.token === token && now.query === query;
  point({ run, token, query, locked: !isSame });
}

function release(run) {
  if (pointed(run).locked) point({ run, token: null, query: null, locked: false });
}

// Calls back on every change of the pointed token, of the page's theme and of the widget's width, while it is there.
function follow(onToken, onLook) {
  const closing = new AbortController();
  const ifThere = (act) => (event) => (element.isConnected ? act(event) : closing.abort());
  document.addEventListener(LINK, ifThere(onToken), { signal: closing.signal });
  const escape = ifThere((event) => event.key === "Escape" && document.cacheblendToken && release(document.cacheblendToken.run));
  document.addEventListener("keydown", escape, { signal: closing.signal });
  const resize = new ResizeObserver(() => requestAnimationFrame(onLook));
  resize.observe(element);
  const look = new MutationObserver(() => requestAnimationFrame(onLook));
  look.observe(document.body, { attributes: true, attributeFilter: ["class"] });
  closing.signal.addEventListener("abort", () => {
    resize.disconnect();
    look.disconnect();
  });
}

function makeStatus() {
  const status = make("p", "cb-status");
  status.setAttribute("role", "status");
  return status;
}

// Only the widget in use speaks: three live regions saying one thing would be noise.
function say(status, text, isLocked) {
  const speaks = isLocked && element.contains(document.activeElement);
  status.setAttribute("aria-live", speaks ? "polite" : "off");
  status.textContent = text;
}

function makeTooltip() {
  const tooltip = make("div", "cb-tooltip");
  tooltip.hidden = true;
  tooltip.setAttribute("aria-hidden", "true");
  return tooltip;
}

function placeTooltip(tooltip, lines, event) {
  tooltip.replaceChildren(...lines.map((line, i) => make("div", i ? "" : "cb-strong", line)));
  tooltip.hidden = false;
  const frame = element.getBoundingClientRect();
  const x = event.clientX - frame.left;
  const y = event.clientY - frame.top;
  const left = x + 14 + tooltip.offsetWidth > frame.width ? x - 14 - tooltip.offsetWidth : x + 14;
  tooltip.style.left = `${Math.max(0, Math.min(left, frame.width - tooltip.offsetWidth))}px`;
  tooltip.style.top = `${y + 16}px`;
}

function makeSelect(label, options, onChange) {
  const select = make("select");
  for (const [value, text] of options) {
    const option = make("option", "", text);
    option.value = value;
    select.append(option);
  }
  select.addEventListener("change", () => onChange(select.value));
  return { select, field: wrapField(label, select) };
}

function wrapField(label, control) {
  const field = make("div", "cb-field");
  const name = make("label", "", label);
  control.id = `cb-${Math.random().toString(36).slice(2)}`;
  name.htmlFor = control.id;
  field.append(name, control);
  return field;
}

function makeIntensity(onChange) {
  const slider = make("input");
  Object.assign(slider, { type: "range", min: "0.2", max: "1", step: "0.05", value: "0.6" });
  slider.addEventListener("input", onChange);
  return { gamma: () => 1.2 - Number(slider.value), field: wrapField("Intensity", slider) };
}

function makeZoomButtons(zoom, reset) {
  const group = make("span", "cb-buttons");
  const button = (text, label, act) => {
    const made = make("button", "", text);
    made.type = "button";
    made.setAttribute("aria-label", label);
    made.title = label;
    made.addEventListener("click", act);
    group.append(made);
  };
  button("+", "Zoom in", () => zoom(0.5));
  button("−", "Zoom out", () => zoom(2));
  button("Reset", "Show everything", reset);
  return group;
}

function makeColourBar(colours, kind, top, gamma, unit) {
  const bar = make("div", "cb-bar");
  bar.setAttribute("role", "img");
  const ramp = make("div", "cb-ramp");
  ramp.style.background = `linear-gradient(to right, ${colours.join(", ")})`;
  const ticks = make("div", "cb-ticks");
  const values = [0, 0.25, 0.5, 0.75, 1].map((at) => {
    const part = kind === "signed" ? 2 * at - 1 : at;
    const power = kind === "share" ? 1 : 1 / gamma;
    return Math.sign(part) * Math.abs(part) ** power * top;
  });
  const text = (value) => (kind === "share" ? `${Math.round(100 * value)} %` : number(value));
  ticks.append(...values.map((value) => make("span", "", text(value))));
  bar.setAttribute("aria-label", `${unit}, from ${text(values[0])} to ${text(values[4])}`);
  bar.append(make("div", "cb-unit", unit), ramp, ticks);
  return bar;
}

// A view [from, to) of a span [0, size), scaled about a place and kept inside.
function scaleView([from, to], about, factor, size, least) {
  const width = Math.min(size, Math.max(least, (to - from) * factor));
  const start = about - ((about - from) / (to - from)) * width;
  const kept = Math.max(0, Math.min(start, size - width));
  return [kept, kept + width];
}

function debounce(act, wait) {
  let timer = 0;
  return (...args) => {
    clearTimeout(timer);
    timer = setTimeout(() => act(...args), wait);
  };
}

// Pointer behaviour common to both maps: hover, click to lock, drag to choose, double click to reset, wheel to zoom.
// The wheel scrolls the page until the map has focus (or Ctrl is held), so that nobody is trapped while passing by.
function bindPointer(canvas, actions) {
  let start = null;
  let isDrag = false;
  canvas.addEventListener("pointerdown", (event) => {
    start = event.button === 0 ? event : null;
    isDrag = false;
  });
  canvas.addEventListener("pointermove", (event) => {
    isDrag = start !== null && (isDrag || Math.hypot(event.clientX - start.clientX, event.clientY - start.clientY) > 5);
    if (isDrag) {
      canvas.setPointerCapture(event.pointerId);
      actions.dragging(start, event);
    } else actions.hover(event);
  });
  canvas.addEventListener("pointerup", (event) => {
    if (start && isDrag) actions.dragged(start, event);
    else if (start) actions.click(event);
    start = null;
    isDrag = false;
  });
  canvas.addEventListener("pointercancel", () => {
    start = null;
    actions.leave();
  });
  canvas.addEventListener("pointerleave", () => start || actions.leave());
  canvas.addEventListener("dblclick", actions.reset);
  canvas.addEventListener(
    "wheel",
    (event) => {
      if (document.activeElement !== canvas && !event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      actions.wheel(event, event.deltaY > 0 ? 1.25 : 0.8);
    },
    { passive: false },
  );
  canvas.addEventListener("keydown", (event) => {
    const moves = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
    if (event.key in moves) actions.move(...moves[event.key]);
    else if (event.key === "+" || event.key === "=") actions.zoom(0.5);
    else if (event.key === "-") actions.zoom(2);
    else if (event.key === "0") actions.reset();
    else return;
    event.preventDefault();
  });
}
