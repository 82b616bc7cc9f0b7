/* States drawn from their numbers. Every drawing is an SVG of 100 × 100 units. */
const canvasOf = (label, ...children) => svg("svg", { class: "schematic", viewBox: "0 0 100 100", role: "img", "aria-label": label },
  svg("rect", { class: "ground", x: 0.5, y: 0.5, width: 99, height: 99, rx: 4 }), children);
const tinted = (node, tint) => { node.style.color = tint; return node; };

/** [x, y, grip, parts…, bits…] of an embedded world; without a place there is no gripper. `trail` are the states before
 * it; of a held-out pair `context` are the lights that it is about and `press` is its button. */
const deskSchematic = (state, world, { trail = [], context = null, press = null } = {}) => {
  const X = (x) => 6 + 88 * x, Y = (y) => 94 - 88 * y, parts = world.parts.length;
  const bits = state.slice(3 + parts), positions = state.slice(3, 3 + parts), nodes = [], words = [];
  const lights = world.buttons.some((button, j) => !world.parts.some((part) => part.locks.includes(j)));
  world.buttons.forEach((button, j) => {
    const gated = world.parts.findIndex((part) => part.locks.includes(j)), on = bits[j] > 0.5;
    if (gated < 0) {
      const half = 36 / Math.sqrt(world.buttons.length) * 0.96;
      nodes.push(lamp(X(button.place[0]), Y(button.place[1]), half, on, j, context, press));
      return;
    }
    const circle = svg("circle", { cx: X(button.place[0]), cy: Y(button.place[1]), r: 5, stroke: "currentColor", "stroke-width": 2.2, fill: on ? "currentColor" : "var(--wood)" });
    nodes.push(tinted(circle, `var(--p${gated % 4})`));
  });
  world.parts.forEach((part, i) => {
    const free = part.locks.every((j) => bits[j] > 0.5), [dx, dy] = part.direction, reach = world.travel;
    const at = (q) => [X(part.base[0] + q * reach * dx), Y(part.base[1] + q * reach * dy)];
    const [sx, sy] = [dy, dx], [bx, by] = at(0), [ex, ey] = at(1), [hx, hy] = at(positions[i]);
    nodes.push(svg("line", { class: "rail", x1: bx, y1: by, x2: ex, y2: ey, "stroke-width": 4 }));
    for (const [x, y] of [[bx, by], [ex, ey]]) nodes.push(svg("line", { class: "rail", x1: x - 3.4 * sx, y1: y - 3.4 * sy, x2: x + 3.4 * sx, y2: y + 3.4 * sy, "stroke-width": 1.6 }));
    const w = Math.abs(dx) > 0.5 ? 8 : 13, h = Math.abs(dx) > 0.5 ? 13 : 8;
    nodes.push(tinted(svg("rect", { x: hx - w / 2, y: hy - h / 2, width: w, height: h, rx: 2, stroke: "currentColor", "stroke-width": 1.8, fill: free ? "currentColor" : "var(--wood)" }), `var(--p${i % 4})`));
    if (!free) nodes.push(svg("line", { class: "shut", x1: hx - 5.6 * sx, y1: hy - 5.6 * sy, x2: hx + 5.6 * sx, y2: hy + 5.6 * sy, "stroke-width": 2.2 }));
    words.push(`${part.name} ${Math.round(100 * positions[i])}% open${free ? "" : ", locked"}`);
  });
  if (lights) words.push(`lights on: ${bits.map((b, j) => (b > 0.5 ? j : null)).filter((j) => j !== null).join(" ") || "none"}`);
  if (trail.length > 1) {
    nodes.push(svg("path", { class: "ink", d: trail.map((s, i) => `${i ? "L" : "M"}${X(s[0]).toFixed(1)},${Y(s[1]).toFixed(1)}`).join(""), "stroke-width": 0.9, opacity: 0.35 }));
  }
  if (state[0] !== null) nodes.push(gripper(X(state[0]), Y(state[1]), state[2]));
  return canvasOf(words.join("; "), nodes);
};

/** Light number j; those outside a context are faint, and the button to press has a mark. */
const lamp = (x, y, half, on, j, context, press) => svg("g", { opacity: context && !context.includes(j) ? 0.22 : 1 },
  svg("rect", { x: x - half, y: y - half, width: 2 * half, height: 2 * half, rx: half / 4, fill: on ? "var(--lit)" : "var(--unlit)" }),
  press === j ? svg("circle", { class: "press", cx: x, cy: y, r: half * 0.34 }) : null);

/** How to read a drawing of an embedded world. */
const deskKey = (world, more = "") => el("p", { class: "note drawing" }, world.parts.length
  ? [world.parts.map((part, i) => el("span", { class: "key" }, swatch(`var(--p${i % 4})`), part.name)),
    "A hollow part with a red bar is locked; the round button of its colour, hollow too, unlocks it."]
  : "A yellow square is a light that is on. A press switches a light and those beside it.", " The brackets are the gripper.", more);

const gripper = (x, y, grip) => {
  const gap = 2 + 3.5 * (1 - grip), group = svg("g");
  for (const side of [-1, 1]) {
    const e = x + side * gap, i = e - side * 1.3, d = `M${i},${y - 3.6}L${e},${y - 2.6}L${e},${y + 2.6}L${i},${y + 3.6}`;
    group.append(svg("path", { class: "halo", d, "stroke-width": 3.4 }), svg("path", { class: "ink", d, "stroke-width": 1.7 }));
  }
  group.append(svg("circle", { class: "ink", cx: x, cy: y, r: 1.2, fill: grip > 0.6 ? "var(--desk-ink)" : "var(--wood)", "stroke-width": 0.8 }));
  return group;
};

/** Any vector: one bar a number, around zero. */
const vectorSchematic = (values, meaning) => {
  const most = Math.max(1e-9, ...values.map(Math.abs)), step = 90 / values.length;
  return canvasOf(values.map((v, i) => `${meaning[i] ?? i} ${v.toFixed(2)}`).join("; "),
    svg("line", { class: "rail", x1: 5, x2: 95, y1: 50, y2: 50, "stroke-width": 0.8 }),
    values.map((v, i) => svg("rect", { x: 5 + i * step, y: v > 0 ? 50 - 42 * v / most : 50, width: Math.max(0.6, step * 0.75), height: Math.abs(42 * v / most), fill: "var(--accent)" })));
};

/** The numbers of a state by what they mean. */
const named = (values, meaning) => Object.fromEntries(meaning.map((name, i) => [name, values[i]]));

/** A board of lights; its shape is in the dataset's name. */
const puzzleSchematic = (values, meaning, dataset, { context = null, press = null } = {}) => {
  const lights = meaning.map((name, i) => (name.startsWith("light ") ? values[i] > 0.5 : null)).filter((on) => on !== null);
  const shape = /(\d+)x(\d+)/.exec(dataset), columns = shape ? +shape[2] : Math.ceil(Math.sqrt(lights.length)), rows = Math.ceil(lights.length / columns);
  const step = 92 / Math.max(rows, columns), left = 50 - step * columns / 2, top = 50 - step * rows / 2;
  const on = lights.map((lit, i) => (lit ? i : null)).filter((i) => i !== null);
  return canvasOf(`lights on: ${on.join(" ") || "none"}`, lights.map((lit, i) =>
    lamp(left + step * (i % columns + 0.5), top + step * (Math.floor(i / columns) + 0.5), step * 0.4, lit, i, context, press)));
};

/** A table with an arm, from above: x to the right, y upwards; cubes, and in the scene a drawer and a window. */
const tableSchematic = (values, meaning) => {
  const at = named(values, meaning), X = (x) => 4 + 92 * (x - 0.15) / 0.6, Y = (y) => 96 - 92 * (y + 0.45) / 0.9, nodes = [], words = [];
  const slide = (name, [x, y], [dx, dy], tint) => {
    const free = at[`${name} unlocked`] > 0.5, open = at[name];
    nodes.push(svg("line", { class: "rail", x1: X(x), y1: Y(y), x2: X(x + dx), y2: Y(y + dy), "stroke-width": 4 }));
    nodes.push(tinted(svg("rect", { x: X(x + open * dx) - 6, y: Y(y + open * dy) - 5, width: 12, height: 10, rx: 2, "stroke-width": 2, stroke: free ? "currentColor" : "var(--shut)", fill: free ? "currentColor" : "var(--wood)" }), tint));
    words.push(`${name} ${Math.round(100 * open)}% open${free ? "" : ", locked"}`);
  };
  if ("drawer" in at) slide("drawer", [0.33, -0.24], [0, 0.16], "var(--p1)");
  if ("window" in at) slide("window", [0.5, 0.3], [0.2, 0], "var(--p2)");
  meaning.filter((name) => name.startsWith("cube") && name.endsWith(" x")).forEach((name, i) => {
    const stem = name.slice(0, -2), [x, y, z] = ["x", "y", "z"].map((axis) => at[`${stem} ${axis}`]), size = 7 * (1 + 2 * z);
    nodes.push(svg("rect", { x: X(x) - size / 2, y: Y(y) - size / 2, width: size, height: size, rx: 1, fill: `var(--p${(3 * i) % 4})`, stroke: "var(--desk-ink)", "stroke-width": 0.8 }));
    words.push(`${stem} at ${x.toFixed(2)}, ${y.toFixed(2)}, ${z.toFixed(2)}`);
  });
  if ("effector x" in at) {
    const [x, y] = [X(at["effector x"]), Y(at["effector y"])];
    nodes.push(svg("path", { class: "ink", d: `M${x - 4},${y}H${x + 4}M${x},${y - 4}V${y + 4}`, "stroke-width": 1.6 }));
  }
  return canvasOf(words.join("; "), nodes);
};

/** A place in a maze; a sample of all places shows where the corridors are. */
const mazeSchematic = (values, map) => {
  map.corridors ??= Array.from({ length: Math.min(500, map.numbers.length) }, (_, i) => map.numbers.row(Math.floor(i * map.numbers.length / Math.min(500, map.numbers.length))));
  const all = map.corridors, low = [0, 1].map((j) => Math.min(...all.map((p) => p[j]))), high = [0, 1].map((j) => Math.max(...all.map((p) => p[j])));
  const span = Math.max(high[0] - low[0], high[1] - low[1], 1e-6), X = (x) => 8 + 84 * (x - (low[0] + high[0] - span) / 2) / span, Y = (y) => 92 - 84 * (y - (low[1] + high[1] - span) / 2) / span;
  return canvasOf(`at ${values[0].toFixed(1)}, ${values[1].toFixed(1)}`,
    svg("path", { class: "rail", "stroke-width": 2.2, d: all.map((p) => `M${X(p[0]).toFixed(1)},${Y(p[1]).toFixed(1)}h0`).join("") }),
    svg("circle", { cx: X(values[0]), cy: Y(values[1]), r: 4, fill: "var(--accent)", stroke: "var(--desk-ink)", "stroke-width": 0.8 }));
};

/** A state drawn by the kind of its numbers: `from` has {schematic, dataset}, and of a map `state`. */
const drawState = (from, values, world, marks) => {
  const { kind, meaning } = from.schematic;
  if (world && (kind === "desk" || values.length === 3 + world.parts.length + world.buttons.length)) return deskSchematic(values, world, marks);
  if (kind === "puzzle") return puzzleSchematic(values, meaning, from.dataset, marks);
  if (kind === "scene" || kind === "cube") return tableSchematic(values, meaning);
  if (kind === "maze") return mazeSchematic(values, from);
  return vectorSchematic(values, meaning);
};

/** A held-out pair: where it starts, what has to be done, how it ends. */
const heldOutPair = (pair, world) => {
  const { state, goal } = pair.schematic, context = pair.context.length ? pair.context : null;
  const draw = (values, press) => drawState(pair, values, world, { context, press });
  return el("figure", { class: "held" },
    el("div", { class: "change" }, draw(state, pair.press), el("span", { class: "arrow" }, el("span", {}, pair.event), el("span", { "aria-hidden": "true" }, "⟶")), draw(goal, null)),
    el("figcaption", {}, `Held out: ${pair.words}.`));
};
