/* The analogy map: every point is a state–goal pair, near points are similar analogies. */
/** A tint for each label: grey where no single thing happens; tasks that stand side by side, as opposite ones do, are
 * shades of one hue; for very many labels the colour wheel. */
const GREYS = { "nothing changes": "var(--grey)", "several changes": "var(--dark-grey)", unlabelled: "var(--grey)" };
const tintsOf = (names) => {
  const plain = names.filter((name) => !(name in GREYS));
  return names.map((name) => {
    const i = plain.indexOf(name);
    return GREYS[name] ?? (plain.length <= 16 ? `var(--${i % 2 ? "q" : "p"}${i >> 1})` : `hsl(${Math.round(i * 137.508) % 360} 52% 52%)`);
  });
};

const resolved = (tint) => {
  const probe = el("span");
  probe.style.color = tint;
  document.body.append(probe);
  const value = getComputedStyle(probe).color;
  probe.remove();
  return value;
};

const readMap = (stored) => ({
  ...stored,
  places: unpack(stored.places), task: unpack(stored.task), context: unpack(stored.context),
  near: Object.fromEntries(Object.entries(stored.neighbours).map(([metric, packed]) => [metric, unpack(packed)])),
  state: unpack(stored.schematic.state), goal: unpack(stored.schematic.goal),
});

/** State or goal of a point: its frame if there is one, else drawn from its numbers. */
const neighboursOf = (map, metric, point) => map.near[metric].row(point).filter((other) => other < map.places.length);

const pictureOf = (map, point, which, world) => {
  const frame = map.frames[point];
  const words = `${which} of pair ${point}`;
  if (frame) return el("img", { src: frame[which === "state" ? 0 : 1], alt: words, loading: "lazy", decoding: "async" });
  return drawState(map, map[which].row(point), world);
};
const pairOf = (map, point, world, captions = true) => el("div", { class: "pair" }, ["state", "goal"].map((which) =>
  el("figure", {}, pictureOf(map, point, which, world), captions ? el("figcaption", {}, which) : null)));

const analogyMap = (stored, world) => {
  const map = readMap(stored), count = map.places.length;
  let metric = Object.keys(map.near)[0], by = "task", only = null, chosen = null, hovered = null;
  const view = { scale: 1, x: 0, y: 0 };
  const canvas = el("canvas", { tabindex: 0, role: "application", "aria-roledescription": "scatter plot",
    "aria-label": `Analogy map of ${whole(count)} state–goal pairs. Arrow keys move to the next pair in that direction, plus and minus zoom.` });
  const tip = el("div", { class: "tip", hidden: true, "aria-hidden": "true" });
  const base = document.createElement("canvas");
  const detail = el("div", { "aria-live": "polite" }), nearest = el("div"), taskTints = tintsOf(map.tasks), legend = el("div", { class: "legend", role: "group" });
  const labels = () => (by === "task" ? map.tasks : map.contexts);
  const labelOf = (point) => (by === "task" ? map.task : map.context).at(point);
  let size = 0, ratio = 1, low = [0, 0], span = 1;

  const bounds = () => {
    const xs = Array.from({ length: count }, (_, i) => map.places.at(i, 0)), ys = Array.from({ length: count }, (_, i) => map.places.at(i, 1));
    const edge = (values, pick) => values.reduce((a, b) => pick(a, b), values[0] ?? 0);
    const [x0, x1, y0, y1] = [edge(xs, Math.min), edge(xs, Math.max), edge(ys, Math.min), edge(ys, Math.max)];
    span = Math.max(x1 - x0, y1 - y0, 1e-9);
    low = [(x0 + x1 - span) / 2, (y0 + y1 - span) / 2];
  };
  const toScreen = (i) => {
    const u = (map.places.at(i, 0) - low[0]) / span - 0.5, v = (map.places.at(i, 1) - low[1]) / span - 0.5;
    return [size / 2 + (u - view.x) * size * 0.94 * view.scale, size / 2 - (v - view.y) * size * 0.94 * view.scale];
  };
  const visible = (i) => only === null || labelOf(i) === only;

  const paint = () => {
    if (!size) return;
    base.width = base.height = Math.round(size * ratio);
    const pen = base.getContext("2d"), tints = tintsOf(labels()).map(resolved);
    pen.scale(ratio, ratio);
    const radius = Math.max(1.3, Math.min(4, 130 / Math.sqrt(count))) * Math.min(2, Math.sqrt(view.scale));
    for (const pass of [false, true]) {
      for (let i = 0; i < count; i++) {
        if (visible(i) !== pass) continue;
        const [x, y] = toScreen(i);
        if (x < -9 || y < -9 || x > size + 9 || y > size + 9) continue;
        pen.globalAlpha = pass ? 0.72 : 0.07;
        pen.fillStyle = tints[labelOf(i)];
        pen.beginPath(); pen.arc(x, y, radius, 0, 7); pen.fill();
      }
    }
    overlay();
  };
  const overlay = () => {
    canvas.width = canvas.height = base.width;
    const pen = canvas.getContext("2d");
    pen.drawImage(base, 0, 0);
    pen.scale(ratio, ratio);
    const ink = resolved("var(--ink)"), paper = resolved("var(--paper)");
    const ring = (i, radius, width) => {
      const [x, y] = toScreen(i);
      for (const [tint, thick] of [[paper, width + 2], [ink, width]]) {
        pen.strokeStyle = tint; pen.lineWidth = thick; pen.beginPath(); pen.arc(x, y, radius, 0, 7); pen.stroke();
      }
    };
    if (chosen !== null) {
      const [x, y] = toScreen(chosen);
      pen.strokeStyle = ink; pen.lineWidth = 0.8; pen.globalAlpha = 0.55;
      for (const other of neighboursOf(map, metric, chosen)) { const [p, q] = toScreen(other); pen.beginPath(); pen.moveTo(x, y); pen.lineTo(p, q); pen.stroke(); }
      pen.globalAlpha = 1;
      for (const other of neighboursOf(map, metric, chosen)) ring(other, 4, 1.2);
      ring(chosen, 7, 2.2);
    }
    if (hovered !== null && hovered !== chosen) ring(hovered, 6, 1.5);
  };

  const facts = (i) => [map.tasks[map.task.at(i)], map.contexts[map.context.at(i)]];
  /** The context of a neighbour, told by what differs from the chosen pair's. */
  const beside = (context, own) => {
    if (context === own) return "same context";
    const parts = context.split(", "), known = own.split(", ");
    return parts.length === known.length ? parts.filter((part) => !known.includes(part)).join(", ") : context;
  };
  const choose = (i) => {
    chosen = i;
    overlay();
    const [task, context] = facts(i), near = neighboursOf(map, metric, i), same = near.filter((j) => map.task.at(j) === map.task.at(i)).length;
    put(detail,
      el("h3", {}, el("span", { class: "key" }, swatch(taskTints[map.task.at(i)]), task)),
      el("p", { class: "note" }, `Pair ${i}. Context: ${context}.`),
      pairOf(map, i, world));
    put(nearest,
      el("h3", {}, `Its ${near.length} nearest analogies`),
      el("p", { class: "note" }, `${metric === "l2" ? "Euclidean" : "Cosine"} distance between analogies, among ${stored.among || "pairs of other episodes"}; ${same} of ${near.length} have the same task.`),
      el("ol", { class: "near" }, near.map((j, place) => {
        const [t, c] = facts(j);
        return el("li", {}, el("button", { type: "button", "data-point": j, "aria-label": `Nearest analogy ${place + 1}: ${t}; context ${c}`, onclick: () => { choose(j); canvas.focus({ preventScroll: true }); } },
          pairOf(map, j, world, false),
          el("span", { class: "key" }, swatch(taskTints[map.task.at(j)]), t), el("span", { class: "note" }, beside(c, context))));
      })));
  };
  const nearestTo = (x, y) => {
    let best = null, reach = 14 ** 2;
    for (let i = 0; i < count; i++) {
      if (!visible(i)) continue;
      const [p, q] = toScreen(i), away = (p - x) ** 2 + (q - y) ** 2;
      if (away < reach) { reach = away; best = i; }
    }
    return best;
  };
  const towards = (dx, dy) => {
    if (chosen === null) return firstPoint;
    const [x, y] = toScreen(chosen);
    let best = chosen, cost = Infinity;
    for (let i = 0; i < count; i++) {
      if (i === chosen || !visible(i)) continue;
      const [p, q] = toScreen(i), along = (p - x) * dx + (q - y) * dy, aside = Math.abs((p - x) * dy) + Math.abs((q - y) * dx);
      if (along > 0.5 && along + 2.5 * aside < cost) { cost = along + 2.5 * aside; best = i; }
    }
    return best;
  };
  const hover = (i, x, y) => {
    if (i === hovered) return;
    hovered = i;
    overlay();
    tip.hidden = i === null;
    if (i === null) return;
    const [task, context] = facts(i);
    put(tip, pairOf(map, i, world, false), el("div", { class: "strong" }, task), el("div", { class: "note" }, context));
    tip.style.left = `${Math.max(4, Math.min(size - 224, x + 14))}px`;
    tip.style.top = y > size / 2 ? "" : `${y + 14}px`;
    tip.style.bottom = y > size / 2 ? `${size - y + 14}px` : "";
  };
  const zoom = (factor) => {
    view.scale = Math.max(1, Math.min(24, view.scale * factor));
    if (view.scale === 1) view.x = view.y = 0;
    else if (chosen !== null && factor > 1) {
      view.x = (map.places.at(chosen, 0) - low[0]) / span - 0.5; view.y = (map.places.at(chosen, 1) - low[1]) / span - 0.5;
    }
    paint();
  };

  let drag = null;
  const local = (event) => { const box = canvas.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
  canvas.addEventListener("pointerdown", (event) => { drag = { at: local(event), x: view.x, y: view.y, moved: false }; });
  canvas.addEventListener("pointermove", (event) => {
    const [x, y] = local(event);
    if (drag && view.scale > 1 && event.buttons) {
      drag.moved ||= Math.hypot(x - drag.at[0], y - drag.at[1]) > 4;
      view.x = drag.x - (x - drag.at[0]) / (size * 0.94 * view.scale); view.y = drag.y + (y - drag.at[1]) / (size * 0.94 * view.scale);
      if (drag.moved) { hover(null); paint(); }
    } else if (event.pointerType === "mouse") hover(nearestTo(x, y), x, y);
  });
  canvas.addEventListener("pointerleave", () => hover(null));
  canvas.addEventListener("click", (event) => {
    const moved = drag?.moved;
    drag = null;
    const found = moved ? null : nearestTo(...local(event));
    if (found !== null) { hover(null); choose(found); }
  });
  canvas.addEventListener("keydown", (event) => {
    const way = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (way) choose(towards(...way));
    else if (event.key === "+" || event.key === "=") zoom(1.6);
    else if (event.key === "-") zoom(1 / 1.6);
    else if (event.key === "0") zoom(0);
    else return;
    event.preventDefault();
  });

  const relabel = () => {
    const totals = new Map();
    for (let i = 0; i < count; i++) totals.set(labelOf(i), (totals.get(labelOf(i)) || 0) + 1);
    legend.setAttribute("aria-label", by === "task" ? "Tasks" : "Contexts");
    const order = [...totals.keys()].sort((a, b) => a - b);
    put(legend, order.map((i) => el("button", { type: "button", "aria-pressed": String(only === null || only === i), onclick: () => { only = only === i ? null : i; relabel(); paint(); } },
      el("span", { class: "key" }, swatch(tintsOf(labels())[i]), `${labels()[i]} `, el("span", { class: "faded" }, whole(totals.get(i)))))));
  };

  const queries = stored.queries || [];
  const firstPoint = queries.length ? queries[0].point : 0;
  const named = queries.length ? chooser("Named query", queries.map((q) => [q.point, q.name]), (value) => choose(+value)) : null;
  const colouring = chooser("Colour by", [["task", "task"], ["context", "context"]], (value) => { by = value; only = null; relabel(); paint(); });
  const distances = chooser("Nearest by", Object.keys(map.near).map((name) => [name, name === "l2" ? "Euclidean distance" : name]), (value) => { metric = value; if (chosen !== null) choose(chosen); });
  const zoomButton = (sign, label, factor) => el("button", { type: "button", "aria-label": label, onclick: () => zoom(factor) }, sign);
  const stage = el("div", { class: "stage" }, canvas, tip,
    el("div", { class: "zoom" }, zoomButton("+", "Zoom in", 1.6), zoomButton("−", "Zoom out", 1 / 1.6), zoomButton("all", "Show the whole map", 0)));
  bounds();
  relabel();
  responsive(stage, (width) => { size = width; ratio = Math.min(3, window.devicePixelRatio || 1); paint(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);
  if (count) choose(firstPoint);
  return el("div", {},
    el("div", { class: "row" }, colouring.node, distances.node, named?.node ?? null),
    el("div", { class: "map" }, stage, el("div", {}, detail, stored.schematic.kind === "desk" && world ? deskKey(world) : null, legend)), nearest);
};
