// Totals, the cactus plot, and the operators of all instances.

function drawTotals(rows, chosen, choose) {
  const counts = Object.values(STATUSES).map((name) => [name, rows.filter((row) => row.status === name).length]);
  const buttons = counts.filter(([, count]) => count).map(([name, count]) => {
    const pressed = chosen.has(name);
    return h("button", { type: "button", "aria-pressed": String(pressed), onclick: () => choose(name) }, h("b", {}, count.toLocaleString("en")), status(name));
  });
  const said = counts.filter(([, count]) => count).map(([name, count]) => `${count} ${name}`).join(", ");
  return [h("div", { class: "totals", role: "group", "aria-label": "Show only" }, buttons), stackedBar(counts, 1120, 8, said)];
}

function drawTimes(rows) {
  const solved = rows.filter((row) => row.status === "violated" || row.status === "holds");
  const seconds = (name) => solved.filter((row) => !name || row.status === name).map((row) => row.seconds);
  if (!solved.length) return null;
  return h("section", {}, h("h2", {}, "Time to solve"), cactus([["all", "s-ink", seconds("")], ["holds", "s-holds", seconds("holds")], ["violated", "s-violated", seconds("violated")]]));
}

function drawOperatorTypes(operators) {
  if (!operators.length) return null;
  const most = 14;
  const sorted = [...operators].sort((a, b) => b[2] - a[2] || b[4] - a[4] || b[3] - a[3] || b[1] - a[1]);
  const line = ([name, proved, violated, masked, open]) =>
    h(
      "tr",
      {},
      h("th", { scope: "row" }, name),
      h("td", { class: "number c-count" }, String(violated)),
      h("td", { class: "number c-count" }, String(open)),
      h("td", { class: "number c-count" }, String(masked)),
      h("td", { class: "number c-count" }, String(proved)),
      h("td", { class: "wide c-bar" }, stackedBar([["violated", violated], ["open", open], ["masked", masked], ["proved", proved]], 150, 10, `${violated} violated, ${open} open, ${masked} masked, ${proved} proved`)),
    );
  const body = h("tbody", {}, sorted.slice(0, most).map(line));
  const more = h("button", { type: "button", onclick: () => { body.append(...sorted.slice(most).map(line)); more.remove(); } }, `Show all ${sorted.length}`);
  const head = ["violated", "open", "masked", "proved"].map((name) => h("th", { scope: "col", class: "number c-count" }, name));
  return h(
    "section",
    {},
    h("h2", {}, "Operators in question"),
    h("table", {}, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "type"), head, h("th", { scope: "col", class: "wide c-bar" }, h("span", { class: "soft" }, "")))), body),
    sorted.length > most ? h("div", { class: "pager" }, more) : null,
  );
}
