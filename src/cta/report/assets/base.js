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

/** What a word means: by pointing at it, by focus, by a tap. */
const WORDS = {
  direct: "Direct success: the goal was reached, and nothing changed on the way but the held-out task itself, once. Success alone may be a detour through contexts that were in the data.",
  lenient: "Lenient: the goal was reached, and the task’s last completion happened in the held-out context, whatever came before it.",
  "α∨": "The dual analogy ψ(g) − ψ(s): what has to change from the state s to the goal g, as the agent represents it. η(α∨) is the code that its policies read.",
  IQM: "Interquartile mean: the mean of the middle half of the numbers, here one for each seed and task. Single very good or very bad ones do not move it.",
};
const bubble = document.body.appendChild(el("div", { id: "bubble", role: "tooltip", hidden: true }));
const term = (word, shown = word) => {
  const open = () => {
    bubble.textContent = WORDS[word];
    bubble.hidden = false;
    const box = node.getBoundingClientRect(), wide = bubble.offsetWidth, tall = bubble.offsetHeight;
    bubble.style.left = `${Math.max(8, Math.min(document.documentElement.clientWidth - wide - 8, box.left)) + scrollX}px`;
    bubble.style.top = `${(box.top > tall + 12 ? box.top - tall - 6 : box.bottom + 6) + scrollY}px`;
  };
  const close = () => { bubble.hidden = true; };
  const node = el("span", { class: "term", tabindex: 0, role: "note", "aria-label": `${shown}: ${WORDS[word]}`, onpointerenter: open, onpointerleave: close,
    onfocus: open, onblur: close, onclick: open, onkeydown: (event) => { if (event.key === "Escape") close(); } }, shown);
  return node;
};

/** Text with `code` between backticks and [[words]] of the list above. */
const prose = (text) => text.split("`").map((part, i) => (i % 2 ? el("code", {}, part)
  : part.split(/\[\[(.*?)\]\]/).map((piece, j) => (j % 2 && Object.hasOwn(WORDS, piece) ? term(piece) : piece))));

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
/** A labelled choice of [value, text]; [text, [choices]] is a group of them. */
const chooser = (label, choices, onchange) => {
  const select = el("select", { onchange: () => onchange(select.value) }, choices.map(([value, text]) =>
    Array.isArray(text) ? el("optgroup", { label: value }, text.map((one) => option(...one))) : option(value, text)));
  return { node: el("label", {}, label, select), select };
};

const taskName = (dataset, task) => (data.task_names[dataset] || {})[task] ?? `task ${task}`;
