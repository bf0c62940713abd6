// Codes and colours: the browser's half of codec.py.

function decode(base64) {
  return Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
}

// Codes: 0 is "nothing here"; 1…255 hold the square root of value / top, signed ones around 128.
function fraction(code, kind) {
  if (kind === "signed") return (Math.sign(code - 128) * (code - 128) ** 2) / 127 ** 2;
  return ((code - 1) / 254) ** 2;
}

// What is beyond the scale's end is drawn at it, so the last code says "at least".
function amount(code, kind, top) {
  const isBeyond = kind !== "share" && (code === 255 || (kind === "signed" && code === 1));
  return `${isBeyond ? (code === 1 ? "≤ " : "≥ ") : ""}${number(fraction(code, kind) * top)}`;
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

function codeOf(part, kind) {
  const root = Math.sqrt(Math.abs(part));
  return kind === "signed" ? 128 + Math.round(127 * Math.sign(part) * root) : 1 + Math.round(254 * root);
}
