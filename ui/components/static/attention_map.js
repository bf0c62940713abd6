// AttentionMap: four panels of one layer and head, full, reuse, blend and a difference, zoomed and pointed at together.

const GUTTER = 34;
const LEAST = 8;
const state = {};

function render() {
  const payload = props.value;
  state.payload = payload && payload.window ? payload : null;
  root.replaceChildren();
  if (!state.payload) return root.append(make("div", "cb-empty", "Nothing to show yet: this run holds no attention maps."));
  const size = payload.prompt.tokens.length;
  const modes = Object.keys(payload.labels);
  Object.assign(state, { size, modes, rows: [0, size], cols: [0, size], drag: null, asked: 0 });
  Object.assign(state, { layer: payload.window.layer, head: null, compared: Object.keys(payload.window.differences).pop() });
  state.window = unpack(payload.window);
  build(payload);
  draw();
}

function unpack(source) {
  const decodeAll = (panels) => Object.fromEntries(Object.entries(panels).map(([mode, data]) => [mode, decode(data)]));
  return { ...source, panels: decodeAll(source.panels), differences: decodeAll(source.differences) };
}

function build(payload) {
  const { labels } = payload;
  state.intensity = makeIntensity(draw);
  state.bars = [make("div"), make("div")];
  const heads = Array.from({ length: payload.heads }, (_, h) => [h, `head ${h}`]);
  const layer = makeSelect("Layer", payload.layers.map((l) => [l, `layer ${l}`]), (l) => choose({ layer: Number(l) }));
  const head = makeSelect("Head", [["", "mean over heads"], ...heads], (h) => choose({ head: h === "" ? null : Number(h) }));
  layer.select.value = state.layer;
  const controls = make("div", "cb-controls");
  controls.append(make("div", "cb-title", "Attention: each row is a token looking back at the columns"));
  controls.append(layer.field, head.field);
  const pairs = Object.keys(payload.window.differences).map((mode) => [mode, `${labels[mode]} − ${labels.full}`]);
  if (pairs.length) controls.append(pairSelect(pairs));
  controls.append(state.intensity.field, makeZoomButtons(zoomMiddle, reset));
  const bars = make("div", "cb-bars");
  bars.append(...state.bars);
  state.grid = make("div", "cb-grid");
  state.surfaces = [...state.modes, ...(state.compared ? ["difference"] : [])].map((name) => addPanel(name));
  state.status = makeStatus();
  state.note = make("p", "cb-hint");
  state.tooltip = makeTooltip();
  root.append(controls, bars, state.grid, state.status, state.note, state.tooltip);
}

function pairSelect(pairs) {
  const pair = makeSelect("Difference", pairs, (mode) => {
    state.compared = mode;
    draw();
  });
  pair.select.value = state.compared;
  return pair.field;
}

function addPanel(name) {
  const cell = make("div");
  const title = make("div", "cb-panel-label");
  const label = `Attention matrix, ${state.payload.labels[name] || name}. Arrow keys move the locked pair of tokens.`;
  const surface = { ...makeCanvas("cb-square", label), name, title };
  cell.append(title, surface.canvas);
  state.grid.append(cell);
  bindPointer(surface.canvas, actionsFor(surface));
  return surface;
}

function panelOf(surface) {
  const { window: shown, payload } = state;
  if (surface.name !== "difference") {
    const label = payload.labels[surface.name];
    return { codes: shown.panels[surface.name], kind: "sequential", top: shown.top, colours: payload.palette, label };
  }
  const label = `${payload.labels[state.compared]} − ${payload.labels.full}`;
  const codes = shown.differences[state.compared];
  return { codes, kind: "signed", top: shown.difference_top, colours: payload.diverging, label };
}

function draw() {
  if (!state.payload || !root.clientWidth) return;
  const gamma = state.intensity.gamma();
  state.surfaces.forEach((surface) => drawBase(surface, panelOf(surface), gamma));
  const { palette, diverging } = state.payload;
  const { top, difference_top: widest } = state.window;
  state.bars[0].replaceChildren(makeColourBar(palette, "sequential", top, gamma, "attention weight"));
  if (state.compared) state.bars[1].replaceChildren(makeColourBar(diverging, "signed", widest, gamma, "difference of weights"));
  drawNote();
  drawCross();
}

function drawBase(surface, panel, gamma) {
  surface.title.textContent = panel.label;
  const side = surface.canvas.parentElement.clientWidth;
  surface.side = side - GUTTER;
  const ratio = fitCanvas(surface, side, side);
  const context = surface.base.getContext("2d");
  const pixels = Math.round(surface.side * ratio);
  const box = { left: surface.base.width - pixels, top: 0, width: pixels, height: pixels };
  const { row_edges: rowEdges, col_edges: colEdges } = state.window;
  const grid = { codes: panel.codes, kind: panel.kind, rowEdges, colEdges, rowView: state.rows, colView: state.cols };
  paintCells(context, box, grid, lookupTable(panel.colours, panel.kind, gamma));
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  drawSegments(context, surface.side);
}

function drawSegments(context, side) {
  context.font = "11px system-ui, sans-serif";
  context.textAlign = "center";
  context.textBaseline = "middle";
  const { text } = pageColours();
  const bars = (from, to) => [Math.max(0, Math.min(side, from)), Math.max(0, Math.min(side, to))];
  for (const segment of state.payload.prompt.segments) {
    const [left, right] = bars(across(segment.start, side), across(segment.stop, side));
    const [top, bottom] = bars(down(segment.start, side), down(segment.stop, side));
    context.fillStyle = segment.colour;
    if (right > left) context.fillRect(GUTTER + left, side + 2, Math.max(1, right - left - 1), 4);
    if (bottom > top) context.fillRect(GUTTER - 6, top, 4, Math.max(1, bottom - top - 1));
    context.fillStyle = "rgb(128 128 128 / 70%)";
    if (left > 0 && left < side) context.fillRect(GUTTER + Math.round(left), Math.max(0, top), 1, side - Math.max(0, top));
    if (top > 0 && top < side) context.fillRect(GUTTER, Math.round(top), left, 1);
    context.fillStyle = text;
    if (right - left > 12) context.fillText(segment.label, GUTTER + (left + right) / 2, side + 14);
    if (bottom - top > 12) context.fillText(segment.label, GUTTER - 15, (top + bottom) / 2);
  }
  context.fillStyle = pageColours().soft;
  context.fillText("attended token", GUTTER + side / 2, side + 27);
  context.save();
  context.translate(7, side / 2);
  context.rotate(-Math.PI / 2);
  context.fillText("looking token", 0, 0);
  context.restore();
}

function across(token, side) {
  return ((token - state.cols[0]) / (state.cols[1] - state.cols[0])) * side;
}

function down(token, side) {
  return ((token - state.rows[0]) / (state.rows[1] - state.rows[0])) * side;
}

function place(surface, event) {
  const frame = surface.canvas.getBoundingClientRect();
  const x = (event.clientX - frame.left - GUTTER) / surface.side;
  const y = (event.clientY - frame.top) / surface.side;
  const inside = (part) => Math.max(0, Math.min(1, part));
  const col = state.cols[0] + inside(x) * (state.cols[1] - state.cols[0]);
  const row = state.rows[0] + inside(y) * (state.rows[1] - state.rows[0]);
  const whole = (exact) => Math.min(state.size - 1, Math.floor(exact));
  return { row, col, token: whole(col), query: whole(row), isInside: x >= 0 && x <= 1 && y >= 0 && y <= 1 };
}

function readings(token, query) {
  const { row_edges: rows, col_edges: cols } = state.window;
  const isOut = (edges, at) => at < edges[0] || at >= edges[edges.length - 1];
  if (token > query) return ["a token does not see what comes after it"];
  if (isOut(rows, query) || isOut(cols, token)) return [];
  const index = cellAt(rows, query) * (cols.length - 1) + cellAt(cols, token);
  return state.surfaces.map((surface) => {
    const { codes, kind, top, label } = panelOf(surface);
    return `${label}: ${codes[index] ? amount(codes[index], kind, top) : "none"}`;
  });
}

function pairLines(token, query) {
  const { prompt } = state.payload;
  return [`${describeToken(prompt, query)}`, `looks at ${describeToken(prompt, token)}`, ...readings(token, query)];
}

function drawCross() {
  if (!state.payload || !root.clientWidth) return;
  const { token, query, locked } = pointed(state.payload.run);
  for (const surface of state.surfaces) {
    if (!surface.side) continue;
    const context = showBase(surface);
    if (token !== null) drawLines(context, surface.side, token, query ?? token, locked);
    if (state.drag) drawDrag(context, surface.side);
  }
  if (token === null) return say(state.status, "Hover over a pair of tokens; click to lock it.", false);
  const lines = query === null ? [describeToken(state.payload.prompt, token)] : pairLines(token, query);
  say(state.status, `${locked ? "Locked: " : ""}${lines.join(" · ")}`, locked);
}

function drawLines(context, side, token, query, locked) {
  const x = Math.round(across(token + 0.5, side)) + 0.5;
  const y = Math.round(down(query + 0.5, side)) + 0.5;
  const path = new Path2D();
  if (x >= 0 && x <= side) path.rect(GUTTER + x, 0, 0.01, side);
  if (y >= 0 && y <= side) path.rect(GUTTER, y, side, 0.01);
  strokeMark(context, path, locked);
}

function drawDrag(context, side) {
  const { rows, cols } = state.drag;
  context.fillStyle = "rgb(128 160 255 / 35%)";
  const [left, top] = [across(cols[0], side), down(rows[0], side)];
  context.fillRect(GUTTER + left, top, across(cols[1], side) - left, down(rows[1], side) - top);
}

function drawNote() {
  const { row_edges: rows, is_pooled: isPooled } = state.window;
  const step = rows.length > 1 ? rows[1] - rows[0] : 1;
  const pooled = isPooled ? `Pooled ${step}:1 (mean). ` : "";
  const span = ([from, to]) => `${Math.floor(from)}–${Math.ceil(to) - 1}`;
  state.note.textContent = `${pooled}Looking ${span(state.rows)}, attended ${span(state.cols)}. Drag a box to zoom, double click to reset; after a click the wheel zooms and Esc unlocks.`;
}

function choose(change) {
  Object.assign(state, change);
  fetchWindow();
}

function setView(rows, cols) {
  Object.assign(state, { rows, cols });
  draw();
  fetchWindow();
}

const fetchWindow = debounce(async () => {
  const asked = ++state.asked;
  const { payload, layer, head } = state;
  const whole = ([from, to]) => [Math.max(0, Math.floor(from)), Math.min(state.size, Math.ceil(to))];
  beBusy(true);
  const request = { run: payload.run, layer, head, rows: whole(state.rows), cols: whole(state.cols) };
  const reply = await server.window(request).catch(() => ({ error: "This part could not be fetched: zoom once more." }));
  if (asked !== state.asked || payload !== state.payload) return;
  beBusy(false);
  if (reply.error) return void (state.note.textContent = reply.error);
  state.window = unpack(reply);
  draw();
}, 160);

// Until the server has computed the part: what is shown is the coarser picture, and it says so.
function beBusy(isBusy) {
  state.grid.setAttribute("aria-busy", String(isBusy));
  state.grid.classList.toggle("cb-busy", isBusy);
  if (isBusy) state.note.textContent = "Computing this part of the attention …";
}

function zoomAbout(row, col, factor) {
  setView(scaleView(state.rows, row, factor, state.size, LEAST), scaleView(state.cols, col, factor, state.size, LEAST));
}

function zoomMiddle(factor) {
  const middle = ([from, to]) => (from + to) / 2;
  const { token, query, locked } = pointed(state.payload.run);
  const held = locked && token !== null;
  zoomAbout(held ? (query ?? token) : middle(state.rows), held ? token : middle(state.cols), factor);
}

function reset() {
  setView([0, state.size], [0, state.size]);
}

function grow([from, to]) {
  const start = Math.max(0, Math.min(from, state.size - LEAST));
  return [start, Math.max(start + LEAST, to)];
}

function actionsFor(surface) {
  const run = () => state.payload.run;
  const sorted = (a, b) => [Math.min(a, b), Math.max(a, b)];
  return {
    hover(event) {
      const at = place(surface, event);
      if (!at.isInside) return this.leave();
      hover(run(), at.token, at.query);
      placeTooltip(state.tooltip, pairLines(at.token, at.query), event);
    },
    leave() {
      state.tooltip.hidden = true;
      hover(run(), null);
    },
    click(event) {
      const at = place(surface, event);
      if (at.isInside) toggleLock(run(), at.token, at.query);
    },
    dragging(start, event) {
      state.tooltip.hidden = true;
      const [a, b] = [place(surface, start), place(surface, event)];
      state.drag = { rows: sorted(a.row, b.row), cols: sorted(a.col, b.col) };
      drawCross();
    },
    dragged() {
      const { rows, cols } = state.drag;
      state.drag = null;
      setView(grow(rows), grow(cols));
    },
    wheel(event, factor) {
      const at = place(surface, event);
      zoomAbout(at.row, at.col, factor);
    },
    move(rows, columns) {
      const now = pointed(run());
      const kept = (at) => Math.max(0, Math.min(state.size - 1, at));
      const token = kept((now.token ?? 0) + columns);
      point({ run: run(), token, query: kept((now.query ?? now.token ?? 0) + rows), locked: true });
    },
    zoom: zoomMiddle,
    reset,
  };
}

follow(drawCross, draw);
watch("value", render);
render();
