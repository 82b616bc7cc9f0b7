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

/** Success on each task: a bar for the mean over seeds and a dot for every seed. `lines` are {label, tint, tasks}. */
const taskChart = (lines, tasks, name) => {
  const stage = el("div");
  responsive(stage, (width) => {
    const label = Math.min(190, width * 0.36), right = 52, thick = lines.length > 4 ? 11 : 16, gap = 14;
    const block = lines.length * (thick + 3) + gap, height = tasks.length * block + 24;
    const x = (value) => label + value / 100 * (width - label - right);
    const describe = tasks.map((task) => `${name(task)}: ` + lines.map((line) => {
      const values = Object.values(line.tasks[task] || {});
      return `${line.label} ${values.length ? tenth(mean(values)) : "not scored"}`;
    }).join(", ")).join("; ");
    const picture = svg("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": `Success in % on each task. ${describe}` });
    for (const tick of [0, 25, 50, 75, 100]) {
      picture.append(svg("line", { class: tick ? "axis" : "axis base", x1: x(tick), x2: x(tick), y1: 0, y2: height - 24 }),
        svg("text", { x: x(tick), y: height - 6, "text-anchor": "middle" }, `${tick}%`));
    }
    tasks.forEach((task, i) => {
      const top = i * block + gap / 2, words = wrapWords(name(task), Math.floor(label / 6.6));
      const middle = top + (block - gap) / 2;
      words.forEach((text, j) => picture.append(svg("text", { class: "value", x: label - 10, y: middle + 4 + (j - (words.length - 1) / 2) * 14, "text-anchor": "end" }, text)));
      lines.forEach((line, j) => {
        const values = Object.values(line.tasks[task] || {});
        if (!values.length) return;
        const at = top + j * (thick + 3), value = mean(values), group = svg("g");
        group.style.color = line.tint;
        group.append(svg("rect", { class: "bar", x: x(0), y: at, width: Math.max(0.5, x(value) - x(0)), height: thick, rx: 2 }),
          svg("rect", { class: "edge", x: x(value) - 1.5, y: at, width: 3, height: thick, rx: 1 }));
        if (values.length > 1) for (const v of values) group.append(svg("circle", { class: "dot", cx: x(v), cy: at + thick / 2, r: 3 }));
        group.append(svg("text", { class: "value", x: width - right + 10, y: at + thick / 2 + 4 }, tenth(value)));
        picture.append(group);
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
