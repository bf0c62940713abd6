// Canvases: a matrix of codes painted at device resolution, zoomed, and pointed at with mouse, finger and keys.

const LOCKED = "#ff2bd6"; // in no scale, so it shows on all of them

// A line in a dark casing: legible on every colour underneath.
function strokeMark(context, path, isLocked) {
  context.strokeStyle = "rgb(0 0 0 / 80%)";
  context.lineWidth = isLocked ? 3.5 : 2.5;
  context.stroke(path);
  context.strokeStyle = isLocked ? LOCKED : "#fff";
  context.lineWidth = isLocked ? 1.5 : 1;
  context.stroke(path);
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
