// The page: what is looked for, the table of instances, and the details of those that are opened.

const PER_PAGE = 100;
const COLUMNS = [
  { title: "instance", name: "", key: (row) => row.id },
  { title: "category", name: "c-category wide", key: (row) => row.category },
  { title: "verdict", name: "c-verdict", key: (row) => Object.values(STATUSES).indexOf(row.status) },
  { title: "operators violated", name: "c-operators wide", key: (row) => -row.violated },
  { title: "seconds", name: "c-seconds number", key: (row) => -row.seconds },
];
const BY_VERDICT = 2; // what is violated comes first

function parseRow([id, category, model, property, name, seconds, preparation, types, violated], position) {
  const words = `${id} ${model} ${property} ${category} ${STATUSES[name]} ${types.join(" ")}`.toLowerCase();
  return { position, id, category, model, property, status: STATUSES[name], seconds, preparation, types, violated, words };
}

class InstanceList {
  constructor(rows, atOnce) {
    this.rows = rows;
    this.atOnce = atOnce;
    this.query = "";
    this.category = "";
    this.statuses = new Set();
    this.sorted = { column: BY_VERDICT, down: false };
    this.page = 0;
    this.opened = new Set();
    this.totals = h("div", {});
    this.count = h("p", { class: "soft small", role: "status" });
    this.head = h("tr", {});
    this.body = h("tbody", {});
    this.pager = h("nav", { class: "pager", "aria-label": "Pages" });
  }

  found() {
    const words = this.query.toLowerCase().split(/\s+/).filter(Boolean);
    const kept = this.rows.filter(
      (row) =>
        (!this.statuses.size || this.statuses.has(row.status)) &&
        (!this.category || row.category === this.category) &&
        words.every((word) => row.words.includes(word)),
    );
    const { key } = COLUMNS[this.sorted.column];
    const sign = this.sorted.down ? -1 : 1;
    const compare = (a, b) => (a < b ? -sign : a > b ? sign : 0);
    return kept.sort((a, b) => compare(key(a), key(b)) || a.position - b.position);
  }

  change(values) {
    Object.assign(this, { page: 0 }, values);
    this.draw();
  }

  choose(name) {
    if (!this.statuses.delete(name)) this.statuses.add(name);
    this.change({});
  }

  draw() {
    const found = this.found();
    const pages = Math.max(1, Math.ceil(found.length / PER_PAGE));
    this.page = Math.min(this.page, pages - 1);
    const shown = found.slice(this.page * PER_PAGE, (this.page + 1) * PER_PAGE);
    this.totals.replaceChildren(...drawTotals(this.rows, this.statuses, (name) => this.choose(name)));
    this.count.textContent = found.length === this.rows.length ? plural(found.length, "instance") : `${found.length.toLocaleString("en")} of ${plural(this.rows.length, "instance")}`;
    this.head.replaceChildren(...COLUMNS.map((column, index) => this.drawHead(column, index)));
    this.body.replaceChildren(...shown.flatMap((row) => this.drawRow(row)));
    this.pager.replaceChildren(...(pages > 1 ? this.drawPager(pages) : []));
  }

  drawHead(column, index) {
    const isSorted = this.sorted.column === index;
    const order = isSorted ? (this.sorted.down ? "descending" : "ascending") : "none";
    const sort = () => this.change({ sorted: { column: index, down: isSorted && !this.sorted.down } });
    const arrow = isSorted ? (this.sorted.down ? " ↓" : " ↑") : "";
    return h("th", { scope: "col", class: column.name, "aria-sort": order }, h("button", { type: "button", onclick: sort }, column.title + arrow));
  }

  drawRow(row) {
    const isOpen = this.opened.has(row.position);
    const opener = h("button", { type: "button", class: "opener", "aria-expanded": String(isOpen), onclick: () => this.toggle(row) }, row.model || row.id);
    const types = row.types.length ? `${row.types.slice(0, 4).join(", ")}${row.violated > 1 ? ` (${row.violated})` : ""}` : "";
    const line = h(
      "tr",
      { "data-position": row.position },
      h("th", { scope: "row" }, opener, row.property ? h("div", { class: "sub" }, row.property) : null),
      h("td", { class: "c-category wide" }, row.category),
      h("td", {}, status(row.status)),
      h("td", { class: "wide" }, types),
      h("td", { class: "number" }, row.seconds.toFixed(2)),
    );
    if (!isOpen) return [line];
    const cell = h("td", { colspan: COLUMNS.length });
    this.fillIn(cell, row);
    return [line, h("tr", { class: "detail" }, cell)];
  }

  async fillIn(cell, row) {
    const details = await unpack(`details-${Math.floor(row.position / this.atOnce)}`);
    cell.replaceChildren(drawDetail(row, details[row.position % this.atOnce]));
  }

  toggle(row) {
    if (!this.opened.delete(row.position)) this.opened.add(row.position);
    this.draw();
    const opener = this.body.querySelector(`[data-position="${row.position}"] .opener`);
    if (opener) opener.focus();
  }

  drawPager(pages) {
    const go = (step) => () => this.change({ page: this.page + step });
    return [
      h("button", { type: "button", onclick: go(-1), disabled: this.page === 0 }, "Previous"),
      h("span", { class: "soft small" }, `page ${this.page + 1} of ${pages}`),
      h("button", { type: "button", onclick: go(1), disabled: this.page === pages - 1 }, "Next"),
    ];
  }

  drawTools() {
    const categories = [...new Set(this.rows.map((row) => row.category))].filter(Boolean).sort();
    const search = h("input", { type: "search", id: "filter", placeholder: "name, operator, verdict", oninput: () => this.change({ query: search.value }) });
    const select = h("select", { id: "category", onchange: () => this.change({ category: select.value }) }, h("option", { value: "" }, "all"), categories.map((name) => new Option(clean(name), name)));
    return h("div", { class: "tools" }, h("label", { class: "grow" }, "Find", search), categories.length > 1 ? h("label", {}, "Category", select) : null);
  }
}

async function main() {
  const page = document.getElementById("page");
  const index = await unpack("index");
  const rows = index.rows.map(parseRow);
  const heading = rows.length === 1 ? [rows[0].model, rows[0].property].filter(Boolean).join(" · ") || rows[0].id : plural(rows.length, "instance");
  const header = h("header", {}, h("p", { class: "soft small" }, `ranum-falsify ${index.version}`), h("h1", {}, heading));
  if (rows.length === 1) {
    const details = await unpack("details-0");
    page.replaceChildren(header, drawDetail(rows[0], details[0]));
  } else {
    const list = new InstanceList(rows, index.at_once);
    list.draw();
    page.replaceChildren(
      header,
      list.totals,
      h("div", { class: "columns" }, drawTimes(rows) || "", drawOperatorTypes(index.operators) || ""),
      h("section", {}, h("h2", {}, "Instances"), list.drawTools(), list.count, h("table", { id: "instances" }, h("thead", {}, list.head), list.body), list.pager),
    );
  }
  document.documentElement.dataset.ready = "yes";
}

main();
