/* Small helpers. Text from the data only ever becomes text nodes or attribute values, never markup. */
const data = JSON.parse(document.getElementById("data").textContent);

const fill = (node, attributes, children) => {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined) node.append(child);
  }
  return node;
};
const el = (name, attributes = {}, ...children) => fill(document.createElement(name), attributes, children);
const svg = (name, attributes = {}, ...children) =>
  fill(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);

/** Replace what a node holds. */
const put = (node, ...children) => { node.replaceChildren(); return fill(node, {}, children); };

/** Text with `code` between backticks. */
const prose = (text) => text.split("`").map((part, i) => (i % 2 ? el("code", {}, part) : part));

const ARRAYS = { u8: Uint8Array, u16: Uint16Array, u32: Uint32Array };

/** The numbers of a packed array, as {shape, at(row, column), row(i)}. */
const unpack = (packed) => {
  const text = atob(packed.data);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  const values = new ARRAYS[packed.kind](bytes.buffer);
  const width = packed.shape.length > 1 ? packed.shape[1] : 1;
  const at = packed.scale
    ? (i, j = 0) => packed.offset[j] + packed.scale[j] * values[i * width + j]
    : (i, j = 0) => values[i * width + j];
  const row = (i) => Array.from({ length: width }, (_, j) => at(i, j));
  return { length: packed.shape[0], width, at, row };
};

const blobAddress = (base64, type) => {
  const text = atob(base64);
  const bytes = Uint8Array.from(text, (letter) => letter.charCodeAt(0));
  return URL.createObjectURL(new Blob([bytes], { type }));
};

const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
const spread = (values) => { const m = mean(values); return Math.sqrt(mean(values.map((v) => (v - m) ** 2))); };
const whole = (number) => Math.round(number).toLocaleString("en-US");
const tenth = (number) => number.toFixed(1);
const short = (number) => number >= 1e6 ? `${+(number / 1e6).toFixed(2)}M` : number >= 1e3 ? `${+(number / 1e3).toFixed(1)}k` : `${number}`;
const plural = (count, word) => `${whole(count)} ${word}${count === 1 ? "" : "s"}`;
const colour = (number) => `var(--c${number % 10})`;

const swatch = (tint) => { const node = el("span", { class: "swatch", "aria-hidden": "true" }); node.style.color = tint; return node; };

/** Draw into a container at its width, and again whenever that changes. */
const responsive = (container, draw) => {
  let width = 0;
  const redraw = () => { if (width > 0) draw(width); };
  new ResizeObserver((entries) => {
    const now = Math.floor(entries[0].contentRect.width);
    if (now !== width) { width = now; redraw(); }
  }).observe(container);
  return redraw;
};

const option = (value, text) => el("option", { value }, text);
const chooser = (label, choices, onchange) => {
  const select = el("select", { onchange: () => onchange(select.value) }, choices.map(([value, text]) => option(value, text)));
  return { node: el("label", {}, label, select), select };
};

const taskName = (dataset, task) => {
  const name = (data.task_names[dataset] || {})[task];
  return name ? `${task} ${name}` : `task ${task}`;
};
