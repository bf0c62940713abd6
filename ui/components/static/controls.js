// The element, its texts and its controls. Text from documents only ever reaches the page through textContent.

const root = element.querySelector(".cb-widget");

function make(tag, className = "", text = "") {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text) node.textContent = text;
  return node;
}

function number(value) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  const text = size < 0.001 ? size.toExponential(1) : String(Number(size.toPrecision(3)));
  return value < 0 ? `−${text}` : text;
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
  const label = (value, i) => (kind !== "share" && i === 4 ? `≥ ${text(value)}` : text(value));
  ticks.append(...values.map((value, i) => make("span", "", label(value, i))));
  bar.setAttribute("aria-label", `${unit}, from ${text(values[0])} to ${text(values[4])}`);
  bar.append(make("div", "cb-unit", unit), ramp, ticks);
  return bar;
}
