// Bars, curves, images, and the cactus plot.

/** One bar of parts: [[class, count], ...]. */
function stackedBar(parts, width, height, label) {
  const total = parts.reduce((sum, [, count]) => sum + count, 0) || 1;
  let x = 0;
  const pieces = parts.filter(([, count]) => count).map(([name, count]) => {
    const piece = s("rect", { x, y: 0, width: (count / total) * width, height, class: `f-${name}` });
    x += (count / total) * width;
    return piece;
  });
  const bar = drawing(width, height, label, pieces);
  bar.setAttribute("preserveAspectRatio", "none");
  bar.setAttribute("class", "stacked");
  return bar;
}

function drawArray(name, array) {
  const facts = [`${name}: ${array.dtype} [${array.shape.join(", ")}]`];
  if (array.least !== null) facts.push(array.least === array.greatest ? `= ${show(array.least)}` : `${show(array.least)} to ${show(array.greatest)}`);
  if (array.nan) facts.push(`${array.nan} NaN`);
  if (array.inf) facts.push(`${array.inf} infinite`);
  if (array.images) facts.push(`black is ${show(array.black)}, white ${show(array.white)}`);
  const caption = facts.join(", ");
  let pictures = [];
  if (array.images) pictures = array.images.map((image) => drawImage(image, caption));
  else if (array.curves) pictures = array.curves.map((curve) => drawCurve(curve, caption));
  else if (array.bars) pictures = [drawBars(array.bars, caption)];
  return h("figure", {}, h("figcaption", {}, caption), h("div", { class: "pictures" }, pictures));
}

function drawImage(image, label) {
  const scale = Math.max(1, Math.floor(224 / Math.max(image.height, image.width)));
  const source = `data:image/png;base64,${image.png}`;
  return h("img", { src: source, alt: label, width: image.width * scale, height: image.height * scale });
}

/** The range that a plot shows, and where a value stands in it. */
function scaleOf(values, height) {
  const finite = values.filter(Number.isFinite);
  let [low, high] = [Math.min(0, ...finite), Math.max(0, ...finite)];
  if (low === high) high = low + 1;
  const limit = (value) => Math.min(Math.max(value, low), high);
  // By halves, because the width of the whole range of float64 is infinite.
  return { low, high, at: (value) => height - ((limit(value) / 2 - low / 2) / (high / 2 - low / 2)) * height };
}

const LEFT = 62;
const TOP = 8;

function frame(width, height, scale, label, marks) {
  const zero = TOP + scale.at(0);
  return drawing(LEFT + width + 4, height + 2 * TOP, label, [
    s("text", { x: LEFT - 6, y: TOP + 4, "text-anchor": "end", class: "soft" }, show(scale.high)),
    s("text", { x: LEFT - 6, y: TOP + height + 4, "text-anchor": "end", class: "soft" }, show(scale.low)),
    s("line", { x1: LEFT, x2: LEFT + width, y1: zero, y2: zero, class: "s-soft" }),
    s("line", { x1: LEFT, x2: LEFT, y1: TOP, y2: TOP + height, class: "s-line" }),
    marks,
  ]);
}

function drawBars(raw, label) {
  const values = raw.map(toNumber);
  const step = Math.max(6, Math.min(24, Math.floor(420 / values.length)));
  const [width, height] = [Math.max(step * values.length, 60), 90];
  const scale = scaleOf(values, height);
  const marks = values.map((value, index) => {
    const x = LEFT + index * step + 1;
    const title = s("title", {}, `[${index}] = ${show(value, 9)}`);
    if (Number.isNaN(value)) return s("text", { x: x + step / 2, y: TOP + scale.at(0) - 3, "text-anchor": "middle" }, "×", title);
    const [top, bottom] = [Math.min(scale.at(value), scale.at(0)), Math.max(scale.at(value), scale.at(0))];
    const size = Math.max(bottom - top, 1.5);
    return s("rect", { x, y: TOP + top - (size > bottom - top ? 0.75 : 0), width: step - 2, height: size, class: "f-link" }, title);
  });
  return frame(width, height, scale, label, marks);
}

function drawCurve(raw, label) {
  const points = raw.map(([low, high]) => [toNumber(low), toNumber(high)]);
  const [width, height] = [420, 90];
  const scale = scaleOf(points.flat(), height);
  const x = (index) => (LEFT + ((index + 0.5) / points.length) * width).toFixed(1);
  const known = points.map((point, index) => [index, ...point]).filter(([, low]) => !Number.isNaN(low));
  const upper = known.map(([index, , high]) => `${x(index)},${(TOP + scale.at(high)).toFixed(1)}`);
  const lower = known.map(([index, low]) => `${x(index)},${(TOP + scale.at(low)).toFixed(1)}`);
  return frame(width, height, scale, label, [
    s("polygon", { points: [...upper, ...lower.reverse()].join(" "), class: "f-link pale" }),
    s("polyline", { points: upper.join(" "), class: "s-link" }),
  ]);
}

/** How many instances are solved in at most so many seconds each: `lines` are [name, class, seconds]. */
function cactus(lines) {
  const [width, height, left, bottom] = [520, 240, 58, 34];
  const most = Math.max(1, ...lines.map(([, , times]) => times.length));
  const times = lines.flatMap(([, , all]) => all.filter((value) => value > 0));
  const least = times.reduce((a, b) => Math.min(a, b), Infinity);
  const greatest = times.reduce((a, b) => Math.max(a, b), 0);
  const low = Math.floor(Math.log10(Number.isFinite(least) ? Math.max(least, 1e-3) : 0.1));
  const high = Math.max(low + 1, Math.ceil(Math.log10(greatest || 1)));
  const x = (count) => left + (count / most) * (width - left - 12);
  const y = (value) => TOP + (1 - (Math.log10(Math.max(value, 10 ** low)) - low) / (high - low)) * (height - TOP - bottom);
  const marks = [];
  for (let power = low; power <= high; power += 1) {
    const at = y(10 ** power);
    marks.push(s("line", { x1: left, x2: width - 12, y1: at, y2: at, class: "s-line" }));
    marks.push(s("text", { x: left - 6, y: at + 4, "text-anchor": "end", class: "soft" }, `${show(10 ** power)} s`));
  }
  for (const part of [0, 0.5, 1]) {
    const count = Math.round(part * most);
    marks.push(s("text", { x: x(count), y: height - bottom + 16, "text-anchor": part === 1 ? "end" : "middle", class: "soft" }, String(count)));
  }
  marks.push(s("text", { x: (left + width) / 2, y: height - 3, "text-anchor": "middle", class: "soft" }, "instances solved"));
  for (const [, name, all] of lines) {
    const sorted = [...all].sort((a, b) => a - b);
    const every = Math.max(1, Math.ceil(sorted.length / 400));
    const shown = sorted.map((value, index) => [index + 1, value]).filter(([count]) => count % every === 0 || count === sorted.length || count === 1);
    if (shown.length === 1) marks.push(s("circle", { cx: x(1), cy: y(shown[0][1]), r: 3, class: name.replace("s-ink", "f-soft").replace("s-", "f-") }));
    const path = shown.map(([count, value]) => `${x(count).toFixed(1)},${y(value).toFixed(1)}`).join(" ");
    marks.push(s("polyline", { points: path, class: name }));
  }
  const legend = lines.map(([name, stroke]) => h("span", {}, drawing(18, 8, "", s("line", { x1: 0, x2: 18, y1: 4, y2: 4, class: stroke })), name));
  return [drawing(width, height, "Cactus plot: seconds by number of instances solved", marks), h("div", { class: "legend" }, legend)];
}
