/* Tables that sort. A cell is text, a node, or {text, sort, class}. */
const cellOf = (cell) => cell !== null && typeof cell === "object" && !(cell instanceof Node) ? cell : { text: cell };

const sortableTable = ({ caption, columns, rows, sort = true }) => {
  const body = el("tbody");
  const heads = columns.map((column, place) => {
    const words = sort ? el("button", { type: "button", onclick: () => order(place) }, column.title) : column.title;
    return el("th", { scope: "col", class: column.number && "number", "aria-sort": sort && "none" }, words);
  });
  const lines = rows.map((row) => {
    const cells = row.map(cellOf);
    const node = el("tr", {}, cells.map((cell, place) => el(place === 0 ? "th" : "td", {
      scope: place === 0 && "row", class: [columns[place].number && "number", cell.class].filter(Boolean).join(" ") || null,
    }, cell.text)));
    return { node, keys: cells.map((cell) => ("sort" in cell ? cell.sort : cell.text instanceof Node ? cell.text.textContent : cell.text)) };
  });
  let by = null, down = false;
  const order = (place) => {
    down = by === place ? !down : Boolean(columns[place].number);
    by = place;
    heads.forEach((head, i) => head.setAttribute("aria-sort", i === place ? (down ? "descending" : "ascending") : "none"));
    const missing = (key) => key === null || key === undefined || key === "" || Number.isNaN(key);
    const sorted = [...lines].sort((a, b) => {
      const [p, q] = [a.keys[place], b.keys[place]];
      // What is missing stays at the end, whichever way the rest is sorted.
      if (missing(p) || missing(q)) return missing(p) - missing(q);
      const result = typeof p === "number" && typeof q === "number" ? p - q : String(p).localeCompare(String(q), "en", { numeric: true });
      return down ? -result : result;
    });
    body.append(...sorted.map((line) => line.node));
  };
  body.append(...lines.map((line) => line.node));
  const table = el("table", {}, el("caption", { class: "visually-hidden" }, caption), el("thead", {}, el("tr", {}, heads)), body);
  return el("div", { class: "scroll", role: "region", "aria-label": caption, tabindex: 0 }, table);
};

const withSpread = (values) => values.length > 1 ? `${tenth(mean(values))} ± ${tenth(spread(values))}` : tenth(values[0]);

/** Settings as lists of name and value, one for each group of them. */
const settings = (object) => {
  const groups = [];
  const walk = (values, group) => {
    const pairs = [], inner = [];
    for (const [name, value] of Object.entries(values)) {
      if (value !== null && typeof value === "object" && !Array.isArray(value)) inner.push([name, value]);
      else if (value !== undefined) pairs.push([name, value === null ? "–" : Array.isArray(value) ? value.join(", ") : String(value)]);
    }
    if (pairs.length) groups.push([group, pairs]);
    for (const [name, value] of inner) walk(value, group ? `${group} · ${name}` : name);
  };
  walk(object, "");
  return el("div", { class: "settings" }, groups.map(([group, pairs]) => [group ? el("h4", {}, group) : null,
    el("dl", {}, pairs.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", { class: "mono" }, value))))]));
};
