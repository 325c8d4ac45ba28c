// Elements, numbers, and the results that are packed into the page.

const STATUSES = { sat: "violated", unsat: "holds", unknown: "unknown", timeout: "timeout", error: "error" };

/** Names come from files: what cannot be seen, or turns the direction of reading, is shown as its code. */
function clean(text) {
  return String(text).replace(/[^\P{C}\n]|[\u2028\u2029]/gu, (char) => `\\u{${char.codePointAt(0).toString(16)}}`);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : clean(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined) element.append(child instanceof Node ? child : clean(child));
  }
  return element;
}

function h(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function s(tag, attributes, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

/** A drawing that keeps its width where there is room, and shrinks where there is none. */
function drawing(width, height, label, ...children) {
  return s("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label }, children);
}

/** Infinities and NaN stand in JSON as text. */
function toNumber(value) {
  const named = { inf: Infinity, "-inf": -Infinity, nan: NaN };
  return typeof value === "string" ? (value in named ? named[value] : Number(value)) : Number(value);
}

function show(value, digits = 4) {
  const number = toNumber(value);
  if (Number.isNaN(number)) return "NaN";
  if (!Number.isFinite(number)) return number > 0 ? "∞" : "-∞";
  return String(Number(number.toPrecision(digits)));
}

function showRange(limits) {
  if (!limits) return "not known";
  const [low, high] = limits.map((limit) => show(limit));
  return low === high ? `= ${low}` : `[${low}, ${high}]`;
}

function shorten(text, most) {
  const cleaned = clean(text);
  return cleaned.length <= most ? cleaned : `${cleaned.slice(0, Math.ceil(most / 2) - 1)}…${cleaned.slice(1 - most / 2)}`;
}

function plural(count, noun) {
  return count === 1 ? `${count} ${noun}` : `${count.toLocaleString("en")} ${noun}s`;
}

function status(name) {
  return h("span", { class: `status ${name}` }, name);
}

const unpacked = new Map();

function unpack(id) {
  if (!unpacked.has(id)) unpacked.set(id, readPacked(id));
  return unpacked.get(id);
}

async function readPacked(id) {
  const bytes = Uint8Array.from(atob(document.getElementById(id).textContent), (char) => char.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}
