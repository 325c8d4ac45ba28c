// The graph around an operator, from top to bottom.

const BOX = { width: 196, height: 62, gap: 18, rise: 34, lane: 16 };

/** Where each node stands: below all that it reads. */
function layersOf(graph) {
  const depth = graph.nodes.map(() => 0);
  // Nodes are in topological order, so the edges into a node are known before those out of it.
  for (const [source, target] of [...graph.edges].sort((a, b) => a[1] - b[1])) {
    depth[target] = Math.max(depth[target], depth[source] + 1);
  }
  // A node that nothing is before, such as an input, stands right above its first reader.
  graph.nodes.forEach((_, node) => {
    const readers = graph.edges.filter(([source]) => source === node).map(([, target]) => depth[target]);
    if (readers.length && !graph.edges.some(([, target]) => target === node)) depth[node] = Math.min(...readers) - 1;
  });
  return depth;
}

/** Items of each layer, left to right: nodes, and lanes for the edges that pass by. */
function arrange(graph) {
  const depth = layersOf(graph);
  const layers = Array.from({ length: Math.max(...depth) + 1 }, () => []);
  graph.nodes.forEach((_, node) => layers[depth[node]].push({ node, width: BOX.width, from: [] }));
  const lanes = graph.edges.map(([source, target]) => {
    const passed = [];
    for (let level = depth[source] + 1; level < depth[target]; level += 1) {
      const lane = { node: null, width: BOX.lane, from: [] };
      layers[level].push(lane);
      passed.push(lane);
    }
    const stops = [itemOf(layers, depth, source), ...passed, itemOf(layers, depth, target)];
    stops.slice(1).forEach((item, index) => item.from.push(stops[index]));
    return stops;
  });
  const total = Math.max(...layers.map(widthOf));
  layers.forEach((layer, level) => {
    const centre = (item) => (item.from.length ? item.from.reduce((sum, one) => sum + one.x, 0) / item.from.length : 0);
    if (level) layer.sort((a, b) => centre(a) - centre(b) || (a.node === null) - (b.node === null));
    let x = (total - widthOf(layer)) / 2;
    for (const item of layer) {
      item.x = x + item.width / 2;
      item.y = level * (BOX.height + BOX.rise);
      x += item.width + BOX.gap;
    }
  });
  return { layers, lanes, width: total, height: layers.length * (BOX.height + BOX.rise) - BOX.rise };
}

function itemOf(layers, depth, node) {
  return layers[depth[node]].find((item) => item.node === node);
}

function widthOf(layer) {
  return layer.reduce((sum, item) => sum + item.width + BOX.gap, -BOX.gap);
}

function drawGraph(graph, verdict) {
  const placed = arrange(graph);
  const edges = placed.lanes.map((stops) => {
    let path = `M${stops[0].x + 2},${stops[0].y + BOX.height + 2}`;
    for (let index = 1; index < stops.length; index += 1) {
      const [before, item] = [stops[index - 1], stops[index]];
      const [start, end] = [before.y + BOX.height + 2, item.y + 2];
      const middle = (start + end) / 2;
      path += ` C${before.x + 2},${middle} ${item.x + 2},${middle} ${item.x + 2},${end}`;
      if (item.node === null) path += ` V${item.y + BOX.height + 2}`;
    }
    return s("path", { d: path, class: "s-soft" });
  });
  const boxes = placed.layers.flat().filter((item) => item.node !== null).map((item) => drawNode(graph, item, verdict));
  const label = `Graph around ${graph.nodes[graph.focus].name}, with the bounds of what each operator makes`;
  return drawing(placed.width + 4, placed.height + 4, label, edges, boxes);
}

function drawNode(graph, item, verdict) {
  const node = graph.nodes[item.node];
  const [x, y] = [item.x - item.width / 2 + 2, item.y + 2];
  const isFocus = item.node === graph.focus;
  const result = node.results[0];
  const constants = Object.entries(node.constants).map(([name, limits]) => `${name} ${showRange(limits)}`);
  const facts = [
    `${node.op_type} ${node.name}`,
    ...node.results.map((one) => `makes [${one.shape.join(", ")}] in ${showRange(one.bounds)}`),
    ...constants.map((text) => `constant ${text}`),
    ...(node.hidden ? [`${node.hidden} more before or after it`] : []),
  ];
  const more = node.hidden ? ` +${node.hidden}` : "";
  const type = shorten(node.op_type, 18);
  const room = Math.max(4, 24 - type.length - more.length); // of characters beside the type
  const bounds = result ? `${showRange(result.bounds)}${node.results.length > 1 ? " …" : ""}` : "not known";
  return s(
    "g",
    {},
    s("title", {}, facts.join("\n")),
    s("rect", { x, y, width: item.width, height: BOX.height, rx: 7, class: isFocus ? `box focus ${verdict}` : "box" }),
    // A drawing of its own cuts off what is wider than the box.
    s(
      "svg",
      { x: x + 10, y, width: item.width - 20, height: BOX.height },
      s("text", { x: 0, y: 19, class: "strong" }, type),
      s("text", { x: item.width - 20, y: 19, "text-anchor": "end", class: "soft" }, result ? `${shorten(result.shape.join("×"), room)}${more}` : more),
      s("text", { x: 0, y: 36, class: "soft" }, shorten(node.name, 25)),
      s("text", { x: 0, y: 53 }, shorten(bounds, 27)),
    ),
  );
}

/** Links of a chain that is shown without a click. */
const MOST_LINKS = 10;

/** How the bounds of an operand grew, from the input on. */
function drawHistory(history) {
  const links = [...history.chain].reverse();
  const widths = links.map((link) => toNumber(link.width)).map((width) => (width > 0 ? Math.log10(Math.min(width, 1e300)) : -Infinity));
  const known = widths.filter(Number.isFinite);
  const [low, high] = [Math.min(...known), Math.max(...known)];
  const left = history.length - links.length;
  const rows = links.map((link, index) => {
    const part = Number.isFinite(widths[index]) ? 0.08 + (0.92 * (widths[index] - low)) / (high - low || 1) : 0;
    return h(
      "tr",
      {},
      h("th", { scope: "row" }, link.op_type === "Input" ? shorten(link.node, 40) : `${link.op_type} `, link.op_type === "Input" ? null : h("span", { class: "soft small", title: link.node }, shorten(link.node, 40))),
      h("td", { class: "mono" }, showRange(link.bounds)),
      h("td", { class: "number c-count" }, link.op_type === "Input" ? "" : `×${show(link.growth, 3)}`),
      h("td", { class: "wide c-bar" }, drawing(200, 12, "", s("rect", { x: 0, y: 4, width: 200 * part, height: 8, rx: 2, class: "f-link" }))),
    );
  });
  const title = `Origin of the bounds of ${history.operand}: ${showRange(history.bounds)}`;
  const shown = [
    left > 0 ? h("p", { class: "soft small" }, `the first ${left} operators are left out`) : null,
    h("table", {}, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "operator"), h("th", { scope: "col" }, "bounds"), h("th", { scope: "col", class: "number c-count" }, "growth"), h("th", { scope: "col", class: "wide c-bar" }, "width, logarithmic"))), h("tbody", {}, rows)),
  ];
  if (rows.length <= MOST_LINKS) return [h("h4", {}, title), shown];
  return h("details", {}, h("summary", { class: "h4" }, `${title}, through ${history.length} operators`), shown);
}
