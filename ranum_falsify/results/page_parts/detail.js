// All that is known of one instance.

function drawDetail(row, detail) {
  const box = h("div", { class: "card" });
  const parts = [drawVerdict, drawError, drawCounterexamples, drawOperators, drawOperatorTable, drawGrounds, drawCommands];
  for (const part of parts) {
    // A report of another version may lack what one part shows; the others are shown.
    try {
      box.append(...[part(row, detail)].flat(Infinity).filter((child) => child instanceof Node));
    } catch (error) {
      box.append(h("p", { class: "soft" }, `A part of this report cannot be shown: ${error.message}`));
    }
  }
  return box;
}

function drawVerdict(row, detail) {
  const runs = detail.runs > 1 ? `, begun ${detail.runs} times` : "";
  const ended = detail.ended_early ? `, ended early: ${detail.ended_early}` : "";
  const preparation = row.preparation ? `, after ${show(row.preparation, 3)} s of preparation` : "";
  return h("p", {}, status(row.status), h("span", { class: "soft" }, ` in ${show(row.seconds, 3)} s${preparation}${ended}${runs}`));
}

function drawError(row, detail) {
  const notices = (detail.notices || []).map((notice) => h("p", { class: "small soft" }, `notice: ${notice}`));
  return [detail.error ? h("pre", {}, detail.error) : null, notices];
}

function drawCounterexamples(row, detail) {
  const found = detail.illustration ? detail.illustration.counterexamples : [];
  const files = Object.entries(detail.files || {});
  const named = files.length ? h("p", { class: "small soft" }, `files: ${files.map(([name, file]) => `${name} = ${file}`).join(", ")}`) : null;
  if (!found.length) return named ? [h("h3", {}, "Counterexample"), named] : null;
  return [
    h("h3", {}, found.length > 1 ? "Counterexamples" : "Counterexample"),
    found.map((one) => [
      one.nodes.length ? h("h4", {}, `violates ${one.nodes.join(", ")}`) : null,
      h("div", { class: "pictures" }, Object.entries(one.inputs).map(([name, array]) => drawArray(name, array))),
    ]),
    named,
  ];
}

function drawOperators(row, detail) {
  const drawn = detail.illustration ? detail.illustration.operators : [];
  const isAbout = (one, operator) => one.network === operator.network && (one.node === operator.node || `${one.network}:${one.node}` === operator.node);
  return (detail.operators || []).filter((operator) => operator.verdict !== "proved").map((operator) => {
    const one = drawn.find((candidate) => isAbout(candidate, operator));
    if (!one && operator.verdict !== "violated") return null;
    const title = [status(operator.verdict), ` ${operator.op_type} `, h("span", { class: "soft", title: operator.node }, shorten(operator.node, 90))];
    if (operator.verdict === "open" || operator.verdict === "masked") {
      const condition = operator.condition ? h("p", {}, `valid where ${operator.condition}`) : null;
      return h("details", {}, h("summary", {}, title), condition, drawSurroundings(one, operator));
    }
    return [
      h("h3", {}, title),
      operator.lines.map((line) => h("p", {}, line)),
      one ? drawSurroundings(one, operator) : null,
    ];
  });
}

function drawSurroundings(one, operator) {
  return h(
    "div",
    { class: "beside" },
    h("div", {}, h("h4", {}, "Bounds around it, if all earlier operators are valid"), drawGraph(one.graph, operator.verdict)),
    h("div", { class: "grow" }, one.histories.map(drawHistory)),
  );
}

function drawOperatorTable(row, detail) {
  const operators = detail.operators || [];
  if (!operators.length) return null;
  const rows = operators.map((operator) =>
    h("tr", {}, h("th", { scope: "row" }, operator.node), h("td", {}, operator.op_type), h("td", {}, status(operator.verdict)), h("td", { class: "wide" }, operator.condition)),
  );
  const left = detail.operator_count - operators.length;
  const head = [["operator", ""], ["type", ""], ["verdict", "c-verdict"], ["valid where", "wide"]];
  return h(
    "details",
    {},
    h("summary", {}, `All ${plural(detail.operator_count, "operator")} in question`),
    h("table", {}, h("thead", {}, h("tr", {}, head.map(([text, name]) => h("th", { scope: "col", class: name }, text)))), h("tbody", {}, rows)),
    left > 0 ? h("p", { class: "soft" }, `and ${left} more`) : null,
  );
}

function drawGrounds(row, detail) {
  const grounds = detail.assumptions;
  if (!grounds) return null;
  const facts = [];
  if (row.category) facts.push(["category", row.category]);
  for (const [name, model] of Object.entries(grounds.networks)) facts.push([`network ${name}`, `${model.path} (sha256 ${model.sha256.slice(0, 12)})`]);
  for (const [name, how] of Object.entries(grounds.rewritten || {})) facts.push([`${name} made of`, `${how.before.path} (sha256 ${how.before.sha256.slice(0, 12)}) by ${how.passes.join(", ")}`]);
  if (grounds.property) facts.push(["property", `${grounds.property.path} (sha256 ${grounds.property.sha256.slice(0, 12)})`]);
  for (const [name, value] of Object.entries(grounds.parameters)) facts.push([`parameter ${name}`, String(value)]);
  for (const input of grounds.inputs.slice(0, 12)) facts.push([`input ${input.name}`, `${input.dtype} [${input.shape.join(", ")}] ${grounds.empty ? "(the box is empty)" : `in ${showBox(input)}`}`]);
  if (grounds.inputs.length > 12) facts.push(["inputs", `and ${grounds.inputs.length - 12} more`]);
  if (grounds.side_conditions.length) facts.push(["conditions", shorten(grounds.side_conditions.join("; "), 400)]);
  const sizes = Object.entries(grounds.assumed_dims).map(([name, size]) => `${name} as ${size}`);
  if (sizes.length) facts.push(["taken", sizes.join(", ")]);
  if (grounds.dtype) facts.push(["converted to", grounds.dtype]);
  for (const [name, library] of Object.entries(grounds.libraries)) facts.push([name, `${library.version}${library.covered.length ? `, kernels for ${library.covered.map((one) => one.family).join(", ")}` : ""}`]);
  if (detail.steep.length) facts.push(["forward pass only", `derivatives may be infinite at ${detail.steep.slice(0, 8).join(", ")}`]);
  if (detail.unconfirmed.length) facts.push(["unconfirmed", detail.unconfirmed.slice(0, 8).join("; ")]);
  return [h("h3", {}, "Grounds of the verdict"), h("dl", {}, facts.map(([name, text]) => [h("dt", {}, name), h("dd", {}, text)]))];
}

function showBox(input) {
  const ends = [input.lower, input.upper].map((bound) => {
    if (Array.isArray(bound)) return bound.flat(Infinity).map(toNumber);
    return bound !== null && typeof bound === "object" ? [bound.least, bound.greatest].map(toNumber) : [toNumber(bound)];
  });
  return showRange([Math.min(...ends[0]), Math.max(...ends[1])]);
}

function drawCommands(row, detail) {
  return [h("h3", {}, "Repeat it"), h("pre", {}, detail.commands.join("\n"))];
}
