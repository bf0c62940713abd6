// TokenMap: layer × token matrices stacked under one token axis and one colour scale.

const GUTTER = 40;
const STRIP = 20;
const state = {};

function render() {
  const payload = props.value;
  state.payload = payload && payload.panels ? payload : null;
  root.replaceChildren();
  if (!state.payload) return root.append(make("div", "cb-empty", "Nothing to show yet: this run was not inspected."));
  const size = payload.prompt.tokens.length;
  Object.assign(state, { size, view: [0, size], row: null, detail: null, drag: null, asked: 0 });
  state.overview = unpack(payload);
  build(payload);
  draw();
}

function unpack(source) {
  return { edges: source.edges, panels: source.panels.map((panel) => decode(panel.data)) };
}

function build(payload) {
  state.intensity = makeIntensity(draw);
  state.bar = make("div");
  const controls = make("div", "cb-controls");
  controls.append(make("div", "cb-title", payload.title), state.bar);
  if (payload.kind !== "share") controls.append(state.intensity.field);
  controls.append(makeZoomButtons(zoomMiddle, reset));
  root.append(controls);
  state.surfaces = payload.panels.map((panel) => addPanel(payload, panel));
  state.status = makeStatus();
  state.note = make("p", "cb-hint");
  state.tooltip = makeTooltip();
  root.append(state.status, state.note, state.tooltip);
}

function addPanel(payload, panel) {
  const label = `${panel.label}: ${payload.title}, ${payload.layers} layers by ${state.size} tokens. Arrow keys move the locked token, plus and minus zoom.`;
  const surface = makeCanvas("cb-map", label);
  root.append(make("div", "cb-panel-label", panel.label), surface.canvas);
  bindPointer(surface.canvas, actionsFor(surface));
  return surface;
}

function current() {
  const { detail, view } = state;
  const covers = detail && detail.edges[0] <= view[0] && detail.edges[detail.edges.length - 1] >= view[1];
  return covers ? detail : state.overview;
}

function draw() {
  if (!state.payload || !root.clientWidth) return;
  const { payload } = state;
  const gamma = state.intensity.gamma();
  state.bar.replaceChildren(makeColourBar(payload.palette, payload.kind, payload.top, gamma, payload.unit));
  const table = lookupTable(payload.palette, payload.kind, gamma);
  state.surfaces.forEach((surface, i) => drawBase(surface, current().panels[i], table));
  drawNote();
  drawCross();
}

function plotHeight() {
  return state.payload.layers * Math.max(2, Math.min(14, Math.floor(190 / state.payload.layers)));
}

function drawBase(surface, codes, table) {
  const height = plotHeight();
  const ratio = fitCanvas(surface, root.clientWidth, height + STRIP + 2);
  const context = surface.base.getContext("2d");
  const layers = state.payload.layers;
  const box = {
    left: Math.round(GUTTER * ratio),
    top: 0,
    width: surface.base.width - Math.round(GUTTER * ratio),
    height: Math.round(height * ratio),
  };
  const rowEdges = Array.from({ length: layers + 1 }, (_, i) => i);
  const { kind } = state.payload;
  const columns = { colEdges: current().edges, colView: state.view, keepsMaximum: kind !== "share" };
  const grid = { codes, kind, rowEdges, rowView: [0, layers], ...columns };
  paintCells(context, box, grid, table);
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  drawLayerAxis(context, height);
  drawSegments(context, height);
}

function drawLayerAxis(context, height) {
  const { layers } = state.payload;
  const colours = pageColours();
  context.fillStyle = colours.soft;
  context.font = "11px system-ui, sans-serif";
  context.textAlign = "right";
  context.textBaseline = "middle";
  const step = Math.max(1, Math.ceil(layers / Math.max(2, Math.floor(height / 34))));
  const cell = height / layers;
  for (let layer = 0; layer < layers; layer += step) {
    context.fillText(String(layer), GUTTER - 6, Math.max(6, (layer + 0.5) * cell));
  }
  context.save();
  context.translate(8, height / 2);
  context.rotate(-Math.PI / 2);
  context.textAlign = "center";
  context.fillText("layer", 0, 0);
  context.restore();
}

function drawSegments(context, height) {
  const colours = pageColours();
  context.font = "11px system-ui, sans-serif";
  context.textAlign = "center";
  context.textBaseline = "middle";
  for (const segment of state.payload.prompt.segments) {
    const left = Math.max(GUTTER, xOf(segment.start));
    const right = Math.min(root.clientWidth, xOf(segment.stop));
    if (right - left <= 0) continue;
    context.fillStyle = segment.colour;
    context.fillRect(left, height + 2, Math.max(1, right - left - 1), 4);
    if (segment.start >= state.view[0] && segment.start > 0) {
      context.fillStyle = "rgb(255 255 255 / 60%)";
      context.fillRect(Math.round(left), 0, 1, height);
    }
    context.fillStyle = colours.text;
    const text = [segment.name, segment.label].find((t) => context.measureText(t).width < right - left - 4);
    if (text) context.fillText(text, (left + right) / 2, height + 14);
  }
}

function drawNote() {
  const [from, to] = state.view;
  const edges = current().edges;
  const step = edges[1] - edges[0];
  const pooled = step > 1 ? `Pooled ${step}:1 (${state.payload.pooling}); zoom in for single tokens. ` : "";
  const span = `Tokens ${Math.floor(from)}–${Math.ceil(to) - 1}. `;
  state.note.textContent = `${pooled}${span}Drag to zoom, double click to reset; after a click the wheel zooms and Esc unlocks.`;
}

function xOf(token) {
  const [from, to] = state.view;
  return GUTTER + ((token - from) / (to - from)) * (root.clientWidth - GUTTER);
}

function place(surface, event) {
  const frame = surface.canvas.getBoundingClientRect();
  const [from, to] = state.view;
  const along = (event.clientX - frame.left - GUTTER) / (frame.width - GUTTER);
  const exact = Math.max(0, Math.min(state.size, from + along * (to - from)));
  const layer = Math.floor(((event.clientY - frame.top) / plotHeight()) * state.payload.layers);
  return {
    exact,
    token: Math.min(state.size - 1, Math.floor(exact)),
    layer: Math.max(0, Math.min(state.payload.layers - 1, layer)),
    isInside: along >= 0 && along <= 1,
  };
}

function codeAt(panel, token, layer) {
  const { edges, panels } = current();
  if (token < edges[0] || token >= edges[edges.length - 1]) return null;
  return panels[panel][layer * (edges.length - 1) + cellAt(edges, token)];
}

function readings(token, layer) {
  return state.payload.panels.map((panel, i) => {
    const { kind, top } = state.payload;
    const code = codeAt(i, token, layer);
    if (code === null) return panel.label;
    if (kind !== "share") return `${panel.label}: ${amount(code, kind, top)}`;
    const value = fraction(code, kind);
    return current().edges[1] - current().edges[0] > 1 ? `computed: ${Math.round(100 * value)} % of the cell` : value > 0.5 ? "computed" : "reused";
  });
}

function drawCross() {
  if (!state.payload || !root.clientWidth) return;
  const now = pointed(state.payload.run);
  const { token, locked } = now;
  for (const surface of state.surfaces) {
    const context = showBase(surface);
    if (token !== null) drawToken(context, token, locked);
    if (state.drag) drawDrag(context);
  }
  if (token === null) return say(state.status, "Hover over a token; click to lock it.", false);
  const layer = state.row ?? state.payload.layers - 1;
  const parts = [describeToken(state.payload.prompt, token), `layer ${layer}`, ...readings(token, layer)];
  say(state.status, `${locked ? "Locked: " : ""}${parts.join(" · ")}`, locked);
}

function drawToken(context, token, locked) {
  const height = plotHeight();
  const left = xOf(token);
  const width = Math.max(2, xOf(token + 1) - left);
  if (left + width < GUTTER || left > root.clientWidth) return;
  const path = new Path2D();
  path.rect(left, 1, width, height - 2);
  if (state.row !== null) {
    const cell = height / state.payload.layers;
    path.rect(GUTTER, state.row * cell, root.clientWidth - GUTTER, cell);
  }
  strokeMark(context, path, locked);
}

function drawDrag(context) {
  context.fillStyle = "rgb(255 255 255 / 30%)";
  context.fillRect(xOf(state.drag[0]), 0, xOf(state.drag[1]) - xOf(state.drag[0]), plotHeight());
}

function setView(view) {
  state.view = view;
  draw();
  fetchDetail();
}

function zoomMiddle(factor) {
  const { token, locked } = pointed(state.payload.run);
  const middle = locked && token >= state.view[0] && token < state.view[1] ? token + 0.5 : (state.view[0] + state.view[1]) / 2;
  setView(scaleView(state.view, middle, factor, state.size, 8));
}

function reset() {
  setView([0, state.size]);
}

const fetchDetail = debounce(async () => {
  const [from, to] = state.view;
  const step = state.overview.edges[1] - state.overview.edges[0];
  if (step === 1 || to - from > state.size / 1.5 || current() !== state.overview) return;
  const margin = (to - from) / 2;
  const start = Math.max(0, Math.floor(from - margin));
  const stop = Math.min(state.size, Math.ceil(to + margin));
  const asked = ++state.asked;
  const { payload } = state;
  const reply = await server.detail({ run: payload.run, what: payload.what, start, stop });
  if (asked !== state.asked || payload !== state.payload) return;
  if (reply.error) return void (state.note.textContent = reply.error);
  state.detail = unpack(reply);
  draw();
}, 160);

function actionsFor(surface) {
  const run = () => state.payload.run;
  return {
    hover(event) {
      const at = place(surface, event);
      if (!at.isInside) return this.leave();
      if (!pointed(run()).locked) state.row = at.layer;
      hover(run(), at.token);
      drawCross();
      placeTooltip(state.tooltip, [describeToken(state.payload.prompt, at.token), `layer ${at.layer}`, ...readings(at.token, at.layer)], event);
    },
    leave() {
      state.tooltip.hidden = true;
      if (!pointed(run()).locked) state.row = null;
      hover(run(), null);
    },
    click(event) {
      const at = place(surface, event);
      if (!at.isInside) return;
      state.row = at.layer;
      toggleLock(run(), at.token);
    },
    dragging(start, event) {
      state.tooltip.hidden = true;
      state.drag = [place(surface, start).exact, place(surface, event).exact].sort((a, b) => a - b);
      drawCross();
    },
    dragged() {
      const [from, to] = state.drag;
      state.drag = null;
      const middle = (from + to) / 2;
      const half = Math.max(4, (to - from) / 2);
      const start = Math.max(0, Math.min(middle - half, state.size - 2 * half));
      setView([start, Math.min(state.size, start + 2 * half)]);
    },
    wheel(event, factor) {
      setView(scaleView(state.view, place(surface, event).exact, factor, state.size, 8));
    },
    move(rows, columns) {
      const now = pointed(run());
      const token = Math.max(0, Math.min(state.size - 1, (now.token ?? Math.floor(state.view[0])) + columns));
      state.row = Math.max(0, Math.min(state.payload.layers - 1, (state.row ?? 0) + rows));
      if (token < state.view[0] || token >= state.view[1]) {
        const half = (state.view[1] - state.view[0]) / 2;
        const start = Math.max(0, Math.min(token - half, state.size - 2 * half));
        setView([start, start + 2 * half]);
      }
      point({ run: run(), token, query: null, locked: true });
    },
    zoom: zoomMiddle,
    reset,
  };
}

follow(drawCross, draw);
watch("value", render);
render();
