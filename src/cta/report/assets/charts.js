/* Learning curves and success per task. */
const niceTicks = (low, high, count) => {
  const rough = (high - low || 1) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => s >= rough);
  const ticks = [];
  for (let tick = Math.ceil(low / step) * step; tick <= high + step * 1e-6; tick += step) ticks.push(+tick.toPrecision(12));
  return ticks;
};

/** Steps with mean and spread over seeds: {step, mean, low, high, count}. */
const summarise = (curve) => {
  const seeds = Object.values(curve.seeds);
  return curve.steps.map((step, i) => {
    const known = seeds.map((values) => values[i]).filter((value) => value !== null);
    if (!known.length) return null;
    const middle = mean(known), around = known.length > 1 ? spread(known) : 0;
    return { step, mean: middle, low: middle - around, high: middle + around, count: known.length };
  }).filter(Boolean);
};

const path = (points, x, y) => points.map((p, i) => `${i ? "L" : "M"}${x(p[0]).toFixed(1)},${y(p[1]).toFixed(1)}`).join("");

/** One chart of several curves over steps. `lines` are {label, tint, curve}. */
const curveChart = (lines, { percent, title, describe, caption }) => {
  const hidden = new Set();
  const stage = el("div"), reading = el("div", { class: "reading", "aria-live": "polite" });
  let frame = null, cursor = null;
  const shown = () => lines.filter((line) => !hidden.has(line.label));
  const bounds = (summaries) => {
    if (percent) return [0, 100];
    const values = summaries.flatMap((s) => s.points.flatMap((p) => [p.low, p.high]));
    const low = Math.min(...values), high = Math.max(...values), room = 0.05 * (high - low || Math.abs(high) || 1);
    return [low - room, high + room];
  };
  const draw = (width) => {
    const height = Math.max(210, Math.min(340, width * 0.55)), left = percent ? 44 : 58, right = 12, top = 30, bottom = 40;
    const summaries = shown().map((line) => ({ ...line, points: summarise(line.curve) })).filter((line) => line.points.length);
    const steps = summaries.flatMap((s) => s.points.map((p) => p.step));
    const first = Math.min(0, ...steps), last = Math.max(1, ...steps);
    const [low, high] = summaries.length ? bounds(summaries) : [0, 100];
    const x = (step) => left + (step - first) / (last - first) * (width - left - right);
    const y = (value) => height - bottom - (value - low) / (high - low) * (height - top - bottom);
    const picture = svg("svg", {
      class: "chart", viewBox: `0 0 ${width} ${height}`, height, role: "img", tabindex: 0, "aria-label": describe(summaries),
      onkeydown: (event) => move(event, steps), onpointermove: (event) => point(event), onpointerleave: () => select(null),
    });
    for (const tick of percent ? [0, 25, 50, 75, 100] : niceTicks(low, high, 5)) {
      picture.append(svg("line", { class: tick === 0 ? "axis base" : "axis", x1: left, x2: width - right, y1: y(tick), y2: y(tick) }),
        svg("text", { x: left - 8, y: y(tick) + 4, "text-anchor": "end" }, percent ? `${tick}%` : `${+tick.toPrecision(4)}`));
    }
    picture.append(svg("text", { x: 0, y: 12 }, title));
    for (const tick of niceTicks(first, last, Math.max(2, Math.floor(width / 110)))) {
      picture.append(svg("text", { x: x(tick), y: height - bottom + 18, "text-anchor": tick === last ? "end" : "middle" }, short(tick)));
    }
    picture.append(svg("text", { x: (left + width - right) / 2, y: height - 3, "text-anchor": "middle" }, "training steps"));
    for (const { curve, points, tint } of summaries) {
      const group = svg("g"), seeds = Object.values(curve.seeds);
      group.style.color = tint;
      if (seeds.length > 1) {
        const around = [...points.map((p) => [p.step, Math.min(high, p.high)]), ...points.map((p) => [p.step, Math.max(low, p.low)]).reverse()];
        group.append(svg("path", { class: "band", d: path(around, x, y) + "Z" }));
        for (const values of seeds) {
          const known = curve.steps.map((step, i) => [step, values[i]]).filter((p) => p[1] !== null);
          group.append(svg("path", { class: "seed", d: path(known, x, y) }));
        }
      }
      group.append(svg("path", { class: "mean", d: path(points.map((p) => [p.step, p.mean]), x, y) }));
      if (points.length <= 40) for (const p of points) group.append(svg("circle", { class: "dot", cx: x(p.step), cy: y(p.mean), r: 3.2 }));
      picture.append(group);
    }
    const line = svg("line", { class: "cursor", y1: top, y2: height - bottom, visibility: "hidden" });
    picture.append(line);
    frame = { x, summaries, line, width, picture, left };
    const focused = stage.contains(document.activeElement);
    put(stage, picture);
    if (focused) picture.focus();
    select(cursor);
  };
  const select = (step) => {
    cursor = step;
    if (!frame) return;
    frame.line.setAttribute("visibility", step === null ? "hidden" : "visible");
    if (step === null) { put(reading, el("span", {}, caption)); return; }
    frame.line.setAttribute("x1", frame.x(step)); frame.line.setAttribute("x2", frame.x(step));
    put(reading, el("span", { class: "strong" }, `step ${whole(step)}`), frame.summaries.map(({ label, tint, points }) => {
      const p = points.find((q) => q.step === step);
      const number = (value) => percent ? tenth(value) : `${+value.toPrecision(4)}`;
      const text = p ? `${label} ${number(p.mean)}${p.count > 1 ? ` ± ${number(p.high - p.mean)}` : ""}${percent ? " %" : ""}` : `${label} –`;
      return el("span", { class: "key" }, swatch(tint), text);
    }));
  };
  const known = () => [...new Set(frame.summaries.flatMap((s) => s.points.map((p) => p.step)))].sort((a, b) => a - b);
  const point = (event) => {
    const box = frame.picture.getBoundingClientRect(), at = event.clientX - box.left;
    const steps = known();
    if (steps.length) select(steps.reduce((best, step) => Math.abs(frame.x(step) - at) < Math.abs(frame.x(best) - at) ? step : best));
  };
  const move = (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key], steps = known();
    if (!by || !steps.length) return;
    event.preventDefault();
    const at = cursor === null ? (by > 0 ? -1 : steps.length) : steps.indexOf(cursor);
    select(steps[Math.max(0, Math.min(steps.length - 1, at + by))]);
  };
  const redraw = responsive(stage, draw);
  const legend = el("div", { class: "legend", role: "group", "aria-label": "Shown series" }, lines.map((line) => {
    const button = el("button", { type: "button", "aria-pressed": "true", onclick: () => {
      if (!hidden.delete(line.label)) hidden.add(line.label);
      button.setAttribute("aria-pressed", String(!hidden.has(line.label)));
      redraw();
    } }, el("span", { class: "key" }, swatch(line.tint), line.label));
    return button;
  }));
  return el("div", {}, legend, stage, reading);
};

/** Bars: a mean over seeds, a dot for every seed, a line for the interval of the mean. `groups` are {name, bars}, a bar
 * is {label, tint, mean, seeds, interval, more, paper}: `more` is what a paler piece reaches up to, `paper` a mark. With
 * `big` every bar has its own name, else every group has one. */
const barChart = (groups, { big = false, describe }) => {
  const stage = el("div"), most = Math.max(...groups.map((group) => group.bars.length));
  responsive(stage, (width) => {
    const names = big ? groups.flatMap((group) => group.bars.map((bar) => bar.label)) : groups.map((group) => group.name);
    const longest = Math.max(...names.flatMap((name) => name.split(" ").map((word) => word.length)), ...names.map((name) => Math.min(name.length, 22)));
    const left = Math.min(big ? width * 0.32 : width * 0.38, longest * (big ? 8.6 : 6.8) + 14), right = big ? 58 : 44;
    const thick = big ? (most > 3 ? 20 : 30) : most > 4 ? 11 : 15, apart = big ? 14 : 3, gap = big ? 4 : 14;
    const block = most * (thick + apart) + gap, height = groups.length * block + 24;
    const x = (value) => left + value / 100 * (width - left - right);
    const picture = svg("svg", { class: big ? "chart big" : "chart", viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": describe + " " + groups.map((group) =>
      `${group.name}: ` + group.bars.map((bar) => `${bar.label} ${tenth(bar.mean)}${bar.interval ? ` (95% interval ${tenth(bar.interval[0])} to ${tenth(bar.interval[1])})` : ""}`).join(", ")).join("; ") });
    for (const tick of [0, 25, 50, 75, 100]) {
      picture.append(svg("line", { class: tick ? "axis" : "axis base", x1: x(tick), x2: x(tick), y1: 0, y2: height - 22 }),
        svg("text", { x: x(tick), y: height - 5, "text-anchor": "middle" }, `${tick}%`));
    }
    const write = (text, middle) => {
      const lines = wrapWords(text, Math.max(6, Math.floor(left / (big ? 8.4 : 6.8))));
      lines.forEach((line, j) => picture.append(svg("text", { class: "value", x: left - 10, y: middle + 4.5 + (j - (lines.length - 1) / 2) * 15, "text-anchor": "end" }, line)));
    };
    groups.forEach((group, i) => {
      const top = i * block + gap / 2;
      if (!big) write(group.name, top + (group.bars.length * (thick + apart) - apart) / 2);
      group.bars.forEach((bar, j) => {
        const at = top + j * (thick + apart) + (big ? apart / 2 : 0), middle = at + thick / 2, node = svg("g"), seeds = Object.values(bar.seeds);
        if (big) write(bar.label, middle);
        node.style.color = bar.tint;
        if (bar.more > bar.mean) node.append(svg("rect", { class: "more", x: x(bar.mean), y: at, width: x(bar.more) - x(bar.mean), height: thick, rx: 2 }));
        node.append(svg("rect", { class: "bar", x: x(0), y: at, width: Math.max(0.5, x(bar.mean) - x(0)), height: thick, rx: 2 }),
          svg("rect", { class: "edge", x: x(bar.mean) - 1.5, y: at, width: 3, height: thick, rx: 1 }));
        if (bar.interval) {
          const [low, high] = bar.interval.map(x), cap = thick * 0.2, y = seeds.length > 1 ? at + thick * 0.28 : middle;
          node.append(svg("path", { class: "whisker", d: `M${low},${y}H${high}M${low},${y - cap}v${2 * cap}M${high},${y - cap}v${2 * cap}` }));
        }
        if (seeds.length > 1) for (const value of seeds) node.append(svg("circle", { class: "dot", cx: x(value), cy: at + thick * 0.72, r: big ? 3.9 : 2.6 }));
        if (bar.paper !== undefined && bar.paper !== null) node.append(svg("line", { class: "paper", x1: x(bar.paper), x2: x(bar.paper), y1: at - 3, y2: at + thick + 3 }));
        node.append(svg("text", { class: "number", x: width - right + 8, y: middle + (big ? 6 : 4) }, big ? `${whole(bar.mean)}%` : whole(bar.mean)));
        picture.append(node);
      });
    });
    put(stage, picture);
  });
  return stage;
};

const wrapWords = (text, most) => {
  const lines = [];
  for (const word of text.split(" ")) {
    if (lines.length && (lines.at(-1) + " " + word).length <= most) lines[lines.length - 1] += ` ${word}`;
    else lines.push(word);
  }
  return lines;
};
