// TokenText: the prompt token by token. One section a stretch, one listener in all, one CSS variable a token.

const state = {};

function render() {
  const payload = props.value;
  state.payload = payload && payload.prompt ? payload : null;
  root.replaceChildren();
  if (!state.payload) return root.append(make("div", "cb-empty", "Nothing to show yet: ask a question first."));
  Object.assign(state, { colourings: payload.colourings, chosen: "chunk", layer: "", marked: [], asked: 0 });
  build(payload);
  colour();
  mark();
}

function build(payload) {
  const choices = [["chunk", "chunk"], ...payload.colourings.map((c, i) => [i, c.label])];
  const by = makeSelect("Colour by", choices, (value) => {
    state.chosen = value;
    colour();
  });
  const layers = Array.from({ length: payload.layers }, (_, l) => [l, `layer ${l}`]);
  const layer = makeSelect("At", [["", "mean over layers"], ...layers], chooseLayer);
  state.layerField = layer.field;
  state.legend = make("div");
  const controls = make("div", "cb-controls");
  controls.append(make("div", "cb-title", "The prompt, token by token"), by.field, layer.field, state.legend);
  state.text = make("div", "cb-text");
  state.text.tabIndex = 0;
  state.text.setAttribute("role", "application");
  state.text.setAttribute("aria-roledescription", "annotated text");
  state.text.setAttribute("aria-label", "Prompt, token by token. Arrow keys move the locked token, Escape unlocks.");
  state.text.style.setProperty("--hue", payload.colour);
  state.spans = [];
  state.text.append(...payload.prompt.segments.map((segment) => addSection(payload.prompt, segment)));
  state.status = makeStatus();
  state.note = make("p", "cb-hint", "Hover or click a token to see it in every view; arrow keys move the locked one, Esc unlocks.");
  root.append(controls, state.text, state.status, state.note);
  listen();
}

function addSection(prompt, segment) {
  const section = make("div", "cb-section");
  section.style.setProperty("--chunk", segment.colour);
  const size = segment.stop - segment.start;
  const source = segment.source ? ` · ${segment.source}` : "";
  section.append(make("div", "cb-section-label", `${segment.name}${source} · ${size} tokens`));
  section.style.containIntrinsicSize = `auto ${Math.ceil(size / 14) * 22 + 24}px`;
  const body = make("div", "cb-body");
  for (let i = segment.start; i < segment.stop; i++) {
    const span = make("span", "", prompt.tokens[i].replace(/\n/g, "⏎\n"));
    span.dataset.token = i;
    state.spans[i] = span;
    body.append(span);
  }
  section.append(body);
  return section;
}

function listen() {
  const run = () => state.payload.run;
  const tokenOf = (event) => (event.target.dataset.token === undefined ? null : Number(event.target.dataset.token));
  state.text.addEventListener("pointerover", (event) => hover(run(), tokenOf(event)));
  state.text.addEventListener("pointerleave", () => hover(run(), null));
  state.text.addEventListener("click", (event) => tokenOf(event) !== null && toggleLock(run(), tokenOf(event)));
  state.text.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -10, ArrowDown: 10 }[event.key];
    if (!step) return;
    event.preventDefault();
    const token = (pointed(run()).token ?? -1) + step;
    point({ run: run(), token: Math.max(0, Math.min(state.spans.length - 1, token)), query: null, locked: true });
  });
}

async function chooseLayer(layer) {
  state.layer = layer;
  const asked = ++state.asked;
  const { payload } = state;
  const reply = layer === "" ? payload : await server.layer({ run: payload.run, layer: Number(layer) });
  if (asked !== state.asked || payload !== state.payload) return;
  if (reply.error) return void (state.note.textContent = reply.error);
  state.colourings = reply.colourings;
  colour();
  mark();
}

function colouring() {
  return state.chosen === "chunk" ? null : state.colourings[Number(state.chosen)];
}

function colour() {
  const chosen = colouring();
  state.text.classList.toggle("cb-by-chunk", !chosen);
  state.layerField.hidden = !chosen;
  state.codes = chosen ? decode(chosen.data) : null;
  state.legend.replaceChildren(chosen ? valueLegend(chosen) : chunkLegend());
  if (!chosen) return;
  const share = (code) => (chosen.kind === "share" ? fraction(code, "share") : Math.sqrt(fraction(code, "sequential")));
  state.spans.forEach((span, i) => span.style.setProperty("--share", share(state.codes[i]).toFixed(2)));
  mark();
}

function valueLegend(chosen) {
  const bar = makeColourBar(["transparent", state.payload.colour], chosen.kind, chosen.top, 0.5, chosen.label);
  bar.classList.add("cb-fade");
  return bar;
}

function chunkLegend() {
  const legend = make("div", "cb-legend");
  for (const segment of state.payload.prompt.segments) {
    const key = make("span", "cb-key", segment.name);
    key.style.setProperty("--chunk", segment.colour);
    legend.append(key);
  }
  return legend;
}

function mark() {
  if (!state.payload) return;
  const { token, query, locked } = pointed(state.payload.run);
  for (const span of state.marked) span.classList.remove("cb-token", "cb-query", "cb-locked");
  state.marked = [];
  const add = (at, ...names) => {
    if (at === null || !state.spans[at]) return;
    state.spans[at].classList.add(...names);
    state.marked.push(state.spans[at]);
  };
  add(query, "cb-query");
  add(token, "cb-token", ...(locked ? ["cb-locked"] : []));
  if (token === null) return say(state.status, "Hover over a token; click to lock it.", false);
  if (locked) reveal(state.spans[token]);
  const chosen = colouring();
  const at = state.layer === "" ? "mean over layers" : `layer ${state.layer}`;
  const value = chosen ? ` · ${chosen.label}, ${at}: ${amount(state.codes[token], chosen.kind, chosen.top)}` : "";
  say(state.status, `${locked ? "Locked: " : ""}${describeToken(state.payload.prompt, token)}${value}`, locked);
}

// Scrolls the text, never the page.
function reveal(span) {
  const frame = state.text.getBoundingClientRect();
  const box = span.getBoundingClientRect();
  if (box.top < frame.top + 20) state.text.scrollTop += box.top - frame.top - frame.height / 3;
  else if (box.bottom > frame.bottom - 20) state.text.scrollTop += box.bottom - frame.bottom + frame.height / 3;
}

follow(mark, () => {});
watch("value", render);
render();
