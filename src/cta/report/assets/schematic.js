/* States drawn from their numbers. Every drawing is an SVG of 100 × 100 units. */
const canvasOf = (label, ...children) => svg("svg", { class: "schematic", viewBox: "0 0 100 100", role: "img", "aria-label": label },
  svg("rect", { class: "ground", x: 0.5, y: 0.5, width: 99, height: 99, rx: 4 }), children);
const tinted = (node, tint) => { node.style.color = tint; return node; };

/** [x, y, grip, parts…, bits…] of an embedded world; `trail` are the states before it. */
const deskSchematic = (state, world, trail = []) => {
  const X = (x) => 2 + 96 * x, Y = (y) => 98 - 96 * y, parts = world.parts.length;
  const bits = state.slice(3 + parts), positions = state.slice(3, 3 + parts), nodes = [], words = [];
  const lights = world.buttons.some((button, j) => !world.parts.some((part) => part.locks.includes(j)));
  world.buttons.forEach((button, j) => {
    const gated = world.parts.findIndex((part) => part.locks.includes(j)), on = bits[j] > 0.5;
    if (gated < 0) {
      const half = 36 / Math.sqrt(world.buttons.length) * 0.96;
      nodes.push(svg("rect", { x: X(button.place[0]) - half, y: Y(button.place[1]) - half, width: 2 * half, height: 2 * half, rx: 3, fill: on ? "var(--lit)" : "var(--unlit)" }));
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
  nodes.push(gripper(X(state[0]), Y(state[1]), state[2]));
  return canvasOf(words.join("; "), nodes);
};

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

const SCHEMATICS = { desk: (values, _, world) => deskSchematic(values, world) };
const drawState = (kind, values, meaning, world) =>
  ((kind === "desk" && !world) || !SCHEMATICS[kind] ? vectorSchematic : SCHEMATICS[kind])(values, meaning, world);
