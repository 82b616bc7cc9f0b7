/* Analogy maps: every point is a state–goal pair, near points are similar analogies. Maps of the same pairs stand side
 * by side; a pair that is chosen in one is chosen in the other. */
const STILL = "nothing changes";
const GREYS = new Map([[STILL, "var(--grey)"], ["several changes", "var(--dark-grey)"], ["unlabelled", "var(--grey)"]]);
/** A tint for each label: grey where no single thing happens; tasks that stand side by side, as opposite ones do, are
 * shades of one hue; for very many labels the colour wheel. */
const tintsOf = (names) => {
  const plain = names.filter((name) => !GREYS.has(name));
  return names.map((name) => {
    const i = plain.indexOf(name);
    return GREYS.get(name) ?? (plain.length <= 10 && !pairsUp(plain) ? `var(--c${i})` : plain.length <= 16 ? `var(--${i % 2 ? "q" : "p"}${i >> 1})` : `hsl(${Math.round(i * 137.508) % 360} 52% 52%)`);
  });
};
/** Whether labels come in opposites: open the drawer, close the drawer. */
const pairsUp = (names) => names.length > 1 && names.every((name, i) => i % 2 === 0 || name.split(" ").slice(1).join(" ") === names[i - 1].split(" ").slice(1).join(" "));

const resolved = (tint) => {
  const probe = el("span");
  probe.style.color = tint;
  document.body.append(probe);
  const value = getComputedStyle(probe).color;
  probe.remove();
  return value;
};

const readMap = (stored) => {
  const lists = (name) => Object.fromEntries(Object.entries(stored[name] || {}).map(([metric, packed]) => [metric, unpack(packed)]));
  const numbers = unpack(stored.schematic.numbers), state = unpack(stored.schematic.state), goal = unpack(stored.schematic.goal);
  const map = { ...stored, places: unpack(stored.places), task: unpack(stored.task), context: unpack(stored.context), numbers, near: lists("neighbours"), elsewhere: lists("neighbours_elsewhere") };
  const known = (list, metric, point) => (list[metric] ? list[metric].row(point).filter((other) => other < map.places.length) : []);
  return Object.assign(map, {
    neighbours: (metric, point, others) => known(others ? map.elsewhere : map.near, metric, point),
    hasElsewhere: map.contexts.length > 1 && Object.keys(map.elsewhere).length > 0,
    valuesOf: (point, which) => numbers.row((which === "state" ? state : goal).at(point)),
    /** The states from start to goal; only these two where the steps between are not stored. */
    steps: (point) => {
      const first = state.at(point), last = goal.at(point), between = map.played && last > first && last - first < 100;
      return between ? Array.from({ length: last - first + 1 }, (_, i) => numbers.row(first + i)) : [numbers.row(first), numbers.row(last)];
    },
  });
};

/** State or goal of a point: its frame if there is one, else drawn from its numbers. */
const pictureOf = (map, point, which, world) => {
  const frame = map.frames[point];
  if (frame) return el("img", { src: frame[which === "state" ? 0 : 1], alt: `${which} of pair ${point}`, loading: "lazy", decoding: "async" });
  return drawState(map, map.valuesOf(point, which), world);
};
const pairOf = (map, point, world) => el("div", { class: "pair" }, ["state", "goal"].map((which) => el("figure", {}, pictureOf(map, point, which, world))));

/** Colours of points: by task, by one thing of the context, or by the whole of it. A context's name lists its things. */
const colourings = (map) => {
  const split = (name) => (name.includes(", ") ? name.split(", ") : /^[01]+$/.test(name) ? [...name] : [name]);
  const found = [{ title: "task", names: map.tasks, codeOf: (i) => map.task.at(i), legend: true }];
  const parts = map.contexts.map(split), width = parts[0]?.length ?? 0;
  if (map.contexts.length < 2 || parts.some((one) => one.length !== width)) return found;
  if (width > 1) for (let place = 0; place < width; place++) {
    const values = [...new Set(parts.map((one) => one[place]))].sort();
    if (values.length < 2) continue;
    const bits = values.every((value) => value === "0" || value === "1");
    const codes = parts.map((one) => values.indexOf(one[place]));
    const first = values[0].split(" "), alike = first.length > 1 && values.every((value) => value.startsWith(`${first[0]} `));
    const title = bits ? `light ${place}` : values.length > 2 ? (alike ? first[0] : values.slice(0, 2).join(", ")) : alike ? `${values[0]} or ${values[1].slice(first[0].length + 1)}` : values.join(" or ");
    found.push({ title, names: bits ? [`light ${place} off`, `light ${place} on`] : values, codeOf: (i) => codes[map.context.at(i)], legend: true, context: true });
  }
  found.push({ title: "the whole context", names: map.contexts, codeOf: (i) => map.context.at(i), legend: map.contexts.length <= 8 && map.contexts.every((name) => name.length < 24), context: true });
  return found;
};

/** One map: a canvas with its own zoom. `shared` is what all maps side by side agree on. */
const mapPane = (map, shared, world) => {
  const count = map.places.length, view = { scale: 1, x: 0, y: 0 }, base = document.createElement("canvas");
  const canvas = el("canvas", { tabindex: 0, role: "application", "aria-roledescription": "scatter plot",
    "aria-label": `Analogy map of ${map.label}, ${whole(count)} state–goal pairs. Arrow keys move to the next pair in that direction, plus and minus zoom.` });
  const tip = el("div", { class: "tip", hidden: true, "aria-hidden": "true" });
  const xs = Array.from({ length: count }, (_, i) => map.places.at(i, 0)), ys = Array.from({ length: count }, (_, i) => map.places.at(i, 1));
  const edge = (values, pick) => values.reduce((a, b) => pick(a, b), values[0] ?? 0);
  const [x0, x1, y0, y1] = [edge(xs, Math.min), edge(xs, Math.max), edge(ys, Math.min), edge(ys, Math.max)];
  const span = Math.max(x1 - x0, y1 - y0, 1e-9), u = (i) => (xs[i] - (x0 + x1) / 2) / span, v = (i) => (ys[i] - (y0 + y1) / 2) / span;
  let size = 0, ratio = 1, hovered = null, drag = null;
  const toScreen = (i) => [size / 2 + (u(i) - view.x) * size * 0.94 * view.scale, size / 2 - (v(i) - view.y) * size * 0.94 * view.scale];

  const paint = () => {
    if (!size) return;
    base.width = base.height = Math.round(size * ratio);
    const pen = base.getContext("2d"), tints = tintsOf(shared.colouring.names).map(resolved);
    pen.scale(ratio, ratio);
    const radius = Math.max(1.4, Math.min(4, 130 / Math.sqrt(count))) * Math.min(2, Math.sqrt(view.scale));
    for (const pass of [false, true]) {
      for (let i = 0; i < count; i++) {
        if (!shared.shown(i) || shared.lit(i) !== pass) continue;
        const [x, y] = toScreen(i);
        if (x < -9 || y < -9 || x > size + 9 || y > size + 9) continue;
        pen.globalAlpha = pass ? 0.78 : 0.07;
        pen.fillStyle = tints[shared.colouring.codeOf(i)];
        pen.beginPath(); pen.arc(x, y, radius, 0, 7); pen.fill();
      }
    }
    overlay();
  };
  const overlay = () => {
    canvas.width = canvas.height = base.width;
    const pen = canvas.getContext("2d"), ink = resolved("var(--ink)"), paper = resolved("var(--paper)");
    pen.drawImage(base, 0, 0);
    pen.scale(ratio, ratio);
    const ring = (i, radius, width) => {
      const [x, y] = toScreen(i);
      for (const [tint, thick] of [[paper, width + 2], [ink, width]]) {
        pen.strokeStyle = tint; pen.lineWidth = thick; pen.beginPath(); pen.arc(x, y, radius, 0, 7); pen.stroke();
      }
    };
    if (shared.chosen !== null) {
      const [x, y] = toScreen(shared.chosen), near = map.neighbours(shared.metric, shared.chosen, shared.elsewhere);
      pen.strokeStyle = ink; pen.lineWidth = 0.8; pen.globalAlpha = 0.55;
      for (const other of near) { const [p, q] = toScreen(other); pen.beginPath(); pen.moveTo(x, y); pen.lineTo(p, q); pen.stroke(); }
      pen.globalAlpha = 1;
      for (const other of near) ring(other, 4, 1.2);
      ring(shared.chosen, 7, 2.2);
    }
    if (hovered !== null && hovered !== shared.chosen) ring(hovered, 6, 1.5);
  };
  const nearestTo = (x, y) => {
    let best = null, reach = 14 ** 2;
    for (let i = 0; i < count; i++) {
      if (!shared.shown(i) || !shared.lit(i)) continue;
      const [p, q] = toScreen(i), away = (p - x) ** 2 + (q - y) ** 2;
      if (away < reach) { reach = away; best = i; }
    }
    return best;
  };
  const towards = (dx, dy) => {
    if (shared.chosen === null) return 0;
    const [x, y] = toScreen(shared.chosen);
    let best = shared.chosen, cost = Infinity;
    for (let i = 0; i < count; i++) {
      if (i === shared.chosen || !shared.shown(i) || !shared.lit(i)) continue;
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
    put(tip, pairOf(map, i, world), el("div", { class: "strong" }, map.tasks[map.task.at(i)]), el("div", { class: "note" }, map.contexts[map.context.at(i)]));
    tip.style.left = `${Math.max(4, Math.min(size - 204, x + 14))}px`;
    tip.style.top = y > size / 2 ? "" : `${y + 14}px`;
    tip.style.bottom = y > size / 2 ? `${size - y + 14}px` : "";
  };
  const zoom = (factor) => {
    view.scale = Math.max(1, Math.min(24, view.scale * factor));
    if (view.scale === 1) view.x = view.y = 0;
    else if (shared.chosen !== null && factor > 1) { view.x = u(shared.chosen); view.y = v(shared.chosen); }
    paint();
  };
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
    if (found !== null) { hover(null); shared.choose(found, true); }
  });
  canvas.addEventListener("keydown", (event) => {
    const way = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (way) shared.choose(towards(...way), true);
    else if (event.key === "+" || event.key === "=") zoom(1.6);
    else if (event.key === "-") zoom(1 / 1.6);
    else if (event.key === "0") zoom(0);
    else return;
    event.preventDefault();
  });
  const zoomButton = (sign, label, factor) => el("button", { type: "button", "aria-label": `${label}, ${map.label}`, onclick: () => zoom(factor) }, sign);
  const stage = el("div", { class: "stage" }, canvas, tip);
  responsive(stage, (width) => { size = width; ratio = Math.min(3, window.devicePixelRatio || 1); paint(); });
  return { map, paint, overlay, node: el("div", { class: "pane" },
    el("div", { class: "over" }, el("h3", {}, map.label, el("span", { class: "faded" }, ` ${map.representation || ""}`)),
      el("div", { class: "zoom" }, zoomButton("+", "Zoom in", 1.6), zoomButton("−", "Zoom out", 1 / 1.6), zoomButton("all", "Show the whole map", 0))), stage) };
};

/** Maps of the same pairs, side by side, with what is chosen in them. */
const analogyMaps = (maps, world, key) => {
  const [first] = maps, choices = colourings(first), still = first.tasks.indexOf(STILL), queries = first.queries || [];
  const shared = {
    chosen: null, metric: Object.keys(first.near)[0], elsewhere: first.hasElsewhere, colouring: choices[0], only: null, quiet: still >= 0 && first.tasks.length > 1,
    shown: (i) => !shared.quiet || first.task.at(i) !== still,
    lit: (i) => shared.only === null || shared.colouring.codeOf(i) === shared.only,
  };
  const panes = maps.map((map) => mapPane(map, shared, world)), taskTints = tintsOf(first.tasks);
  const detail = el("div", { class: "chosen", "aria-live": "polite" }), lists = el("div", { class: panes.length > 1 ? "sides" : "" }), legend = el("div", { class: "legend", role: "group" });
  const paint = () => panes.forEach((pane) => pane.paint());
  /** The context of a neighbour, told by what differs from the chosen pair's. */
  const beside = (context, own) => {
    if (context !== own && /^[01]+$/.test(context)) return null;
    const parts = context.split(", "), known = own.split(", ");
    return el("span", { class: "note" }, context === own ? "same context" : parts.length === known.length ? parts.filter((part) => !known.includes(part)).join(", ") : context);
  };
  const spoken = (context) => (/^[01]+$/.test(context) ? `lights on: ${[...context].map((bit, i) => (bit === "1" ? i : null)).filter((i) => i !== null).join(", ") || "none"}` : context);
  let timer = null;
  const moving = (point) => {
    const steps = first.steps(point), stage = el("figure", {});
    const picture = (at) => (first.played ? drawState(first, steps[at], world) : pictureOf(first, point, at ? "goal" : "state", world));
    const show = (at) => put(stage, picture(at), el("figcaption", {}, first.played ? `step ${at} of ${steps.length - 1}` : at ? "goal" : "state"));
    const play = () => {
      clearInterval(timer);
      let at = 0;
      show(0);
      timer = setInterval(() => { at += 1; if (at < steps.length) show(at); else clearInterval(timer); }, first.played ? 220 : 700);
    };
    show(0);
    return { stage, play };
  };
  const listOf = ({ map }) => {
    const i = shared.chosen, near = map.neighbours(shared.metric, i, shared.elsewhere), same = near.filter((j) => map.task.at(j) === map.task.at(i)).length;
    const where = shared.elsewhere ? "other contexts" : map.among || "pairs of other episodes";
    // Pairs in which nothing or several things change have no task to share.
    const named = !GREYS.has(map.tasks[map.task.at(i)]);
    return el("div", {}, el("h3", {}, panes.length > 1 ? `${map.label}: ` : "", named ? `${same} of the ${near.length} nearest have the same task` : `The ${near.length} nearest`),
      el("p", { class: "note" }, `Nearest by ${shared.metric === "l2" ? "Euclidean distance" : shared.metric} of ${map.representation || "the analogies"}, from ${where}.`),
      el("ol", { class: "near" }, near.map((j, place) => {
        const [task, context] = [map.tasks[map.task.at(j)], map.contexts[map.context.at(j)]], good = named && map.task.at(j) === map.task.at(i);
        return el("li", {}, el("button", { type: "button", class: good ? "good" : null, "data-point": j, "aria-label": `Nearest analogy ${place + 1}: ${task}; context ${spoken(context)}`, onclick: () => shared.choose(j, true) },
          pairOf(map, j, world), el("span", { class: "key" }, swatch(taskTints[map.task.at(j)]), task), beside(context, map.contexts[map.context.at(i)])));
      })));
  };
  shared.choose = (i, asked = false) => {
    shared.chosen = i;
    panes.forEach((pane) => pane.overlay());
    const task = first.tasks[first.task.at(i)], { stage, play } = moving(i), address = `#point-${key}-${i}`;
    put(detail,
      el("h3", {}, el("span", { class: "key" }, swatch(taskTints[first.task.at(i)]), task)),
      el("p", { class: "note" }, `Pair ${i}. Context: ${spoken(first.contexts[first.context.at(i)])}. `, el("a", { href: address }, "Link to this pair")),
      el("div", { class: "pair" }, stage, el("figure", {}, pictureOf(first, i, "goal", world), el("figcaption", {}, "goal"))),
      el("button", { type: "button", class: "again", onclick: play }, "▶ Play the transition"));
    put(lists, panes.map(listOf));
    if (named) {
      const known = queries.some((query) => query.point === i);
      other.hidden = known;
      other.textContent = `pair ${i}: ${task}`;
      named.select.value = known ? String(i) : "other";
    }
    clearInterval(timer);
    if (!asked) return;
    history.replaceState(null, "", address);
    if (!matchMedia("(prefers-reduced-motion: reduce)").matches) play();
  };
  const relabel = () => {
    const totals = new Map(), { names, codeOf, title } = shared.colouring;
    for (let i = 0; i < first.places.length; i++) if (shared.shown(i)) totals.set(codeOf(i), (totals.get(codeOf(i)) || 0) + 1);
    legend.setAttribute("aria-label", `Colours: ${title}`);
    if (!shared.colouring.legend) { put(legend, el("p", { class: "note" }, `${whole(totals.size)} contexts, a colour for each; point at one to read it.`)); return; }
    const tints = tintsOf(names);
    put(legend, [...totals.keys()].sort((a, b) => a - b).map((i) => el("button", { type: "button", "aria-pressed": String(shared.only === null || shared.only === i), onclick: () => { shared.only = shared.only === i ? null : i; relabel(); paint(); } },
      el("span", { class: "key" }, swatch(tints[i]), `${names[i]} `, el("span", { class: "faded" }, whole(totals.get(i)))))));
  };
  const other = el("option", { value: "other", hidden: true }, "");
  const named = queries.length ? chooser("Show", queries.map((query) => [query.point, query.name]), (value) => { if (value !== "other") shared.choose(+value, true); }) : null;
  named?.select.append(other);
  const colour = choices.length > 1 ? chooser("Colour by", [["0", "task"], ["one thing of the context", choices.map((one, i) => [i, one.title]).filter((_, i) => choices[i].context)]],
    (value) => { shared.colouring = choices[+value]; shared.only = null; relabel(); paint(); }) : null;
  const again = () => { if (shared.chosen !== null) shared.choose(shared.chosen); };
  const from = first.hasElsewhere ? chooser("Nearest from", [["1", "other contexts"], ["", "any context"]], (value) => { shared.elsewhere = Boolean(value); again(); }) : null;
  const distance = chooser("by", Object.keys(first.near).map((name) => [name, name === "l2" ? "Euclidean distance" : name]), (value) => { shared.metric = value; again(); });
  const box = el("input", { type: "checkbox", onchange: () => { shared.quiet = !box.checked; relabel(); paint(); } });
  const hidden = shared.quiet ? Array.from({ length: first.places.length }, (_, i) => first.task.at(i)).filter((code) => code === still).length : 0;
  const quiet = shared.quiet ? el("label", {}, box, `also the ${whole(hidden)} pairs in which nothing changes`) : null;
  relabel();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);
  const start = queries.length ? queries[0].point : Math.max(0, Array.from({ length: first.places.length }, (_, i) => i).findIndex(shared.shown));
  if (first.places.length) shared.choose(start);
  return { choose: shared.choose, count: first.places.length, node: el("div", {},
    el("div", { class: "row" }, named?.node ?? null, from?.node ?? null, distance.node, colour?.node ?? null, quiet),
    el("div", { class: panes.length > 1 ? "maps" : "map" }, panes.map((pane) => pane.node), el("div", { class: "about" }, detail, el("div", {}, legend, world ? deskKey(world) : null))), lists) };
};
