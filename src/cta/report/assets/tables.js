/* Tables that sort. A cell is text, a node, or {text, sort, class}. */
const cellOf = (cell) => cell !== null && typeof cell === "object" && !(cell instanceof Node) ? cell : { text: cell };

const plain = (cell) => { const { text } = cellOf(cell); return text instanceof Node ? text.textContent : text === null || text === undefined ? "" : String(text); };

/** Everything in a table as CSV. A cell that a spreadsheet would take for a formula is marked as text. */
const csvOf = (columns, rows) => [columns.map((column) => column.title), ...rows.map((row) => row.map(plain))].map((row) => row.map((text) => {
  const safe = /^[=+@\t\r-]/.test(text) && !/^[-+\d.,±%()[\] –]*$/.test(text) ? `'${text}` : text;
  return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}).join(",")).join("\r\n") + "\r\n";
const csvButton = (caption, columns, rows) => el("button", { type: "button", class: "csv", "aria-label": `${caption}, as a CSV file`, onclick: () => {
  const address = URL.createObjectURL(new Blob(["\ufeff", csvOf(columns, rows)], { type: "text/csv" }));
  el("a", { href: address, download: `${caption.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "") || "table"}.csv` }).click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
} }, "CSV");

/** A table under its title. A column that says the same in every row becomes a line below; the CSV file has it still. */
const sortableTable = ({ caption, columns: all, rows: full, notes = [] }) => {
  const constant = all.map((_, place) => place > 0 && !all[place].keep && full.length > 1 && full.every((row) => plain(row[place]) === plain(full[0][place])));
  const kept = (row) => row.filter((_, place) => !constant[place]);
  const columns = kept(all), rows = full.map(kept), sort = rows.length > 1, body = el("tbody");
  const same = all.map((column, place) => constant[place] && plain(full[0][place]) ? `${column.title.replace(/^[A-Z](?=[a-z])/, (letter) => letter.toLowerCase())} ${plain(full[0][place])}` : null).filter(Boolean);
  const heads = columns.map((column, place) => {
    const words = sort ? el("button", { type: "button", onclick: () => order(place) }, column.title) : column.title;
    const known = Object.keys(WORDS).find((word) => column.title.toLowerCase().startsWith(word.toLowerCase()));
    return el("th", { scope: "col", class: column.number && "number", "aria-sort": sort && "none" }, words, known ? term(known, "?") : null);
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
  // Rows that differ in nothing but their names need no table.
  const alone = columns.length === 1 && same.length > 0;
  const whose = alone ? rows.map(([name]) => plain(name)).join(", ") : "The same for all";
  return el("div", { class: "tabled" }, el("div", { class: "over" }, el("h3", {}, caption), csvButton(caption, all, full)),
    alone ? null : el("div", { class: "scroll", role: "region", "aria-label": caption, tabindex: 0 }, table),
    same.length ? el("p", { class: "note" }, `${whose}: ${same.join(", ")}.`) : null, notes.map((text) => el("p", { class: "note" }, prose(text))));
};

const withSpread = (one) => `${tenth(one.mean)}${Object.keys(one.seeds).length > 1 ? ` ± ${tenth(one.std)}` : ""}`;

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
