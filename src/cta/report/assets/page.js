/* Putting the page together: the question and its answer, rollouts, curves, map, tables, configuration. */
const main = document.getElementById("content"), contents = el("div", { class: "inner" });
document.getElementById("contents").append(contents);

const section = (id, title, link, ...children) => {
  if (!children.flat(Infinity).some(Boolean)) return;
  main.append(el("section", { id, "aria-labelledby": `${id}-title` }, el("h2", { id: `${id}-title` }, title), children));
  contents.append(el("a", { href: `#${id}` }, link));
};
const note = (text) => el("p", { class: "note" }, prose(text));
const datasets = [...new Set(data.series.map((one) => one.data))], labels = [...new Set(data.series.map((one) => one.label))];
/** One colour for each agent, on all datasets. */
const tintOf = (label) => (labels.includes(label) ? colour(labels.indexOf(label)) : "var(--faint)");
const keyOf = (label) => (labels.includes(label) ? el("span", { class: "key" }, swatch(tintOf(label)), label) : label);
const perDataset = (make) => datasets.map((dataset) => {
  const inside = make(dataset, data.series.filter((one) => one.data === dataset));
  return inside && (datasets.length > 1 ? [el("h3", {}, dataset), inside] : inside);
});
const barOf = (one, measured, more = null, paper = null) => measured && { label: one.label, tint: tintOf(one.label), ...measured, more, paper };
const legendOf = (lines) => el("div", { class: "row" }, lines.map((one) => el("span", { class: "small" }, keyOf(one.label))));
const several = data.series.some((one) => one.seeds.length > 1);
const seedNote = several ? " Dots: seeds. Line: 95% interval of the mean." : "";

/* The top: question, answer, bars, the world, one pair. */
const { question, answer, done, world } = data.opening, asked = data.series.some((one) => one.pairs.all);
const paperOf = (one) => data.paper.flatMap((table) => table.rows).find((row) => row.ours && row.agent === one.agent && row.dataset === one.dataset)?.mean ?? null;
const bars = perDataset((dataset, lines) => {
  const found = lines.map((one) => (asked ? one.pairs.all && barOf(one, one.pairs.all.direct, one.pairs.all.successes.mean) : barOf(one, one.success, null, paperOf(one)))).filter(Boolean);
  if (!found.length) return null;
  return barChart([{ name: asked ? "all held-out pairs" : "all tasks", bars: found }], { big: true, describe: asked ? "Direct success on held-out pairs, in %." : "Success in %." });
});
const pair = data.ooc.find((study) => study.drawn)?.drawn;
const barNote = asked ? ["Full bar: [[direct]] success on all held-out pairs. Pale: reached by a detour."] : [`Success over all tasks.${data.paper.some((table) => table.rows.some((row) => row.ours)) ? " Mark: the paper’s." : ""}`];
fill(document.getElementById("top"), {}, [
  el("p", { class: "kicker" }, done),
  el("h1", {}, question),
  answer.map((text) => el("p", { class: "answer" }, text.split(/(\d+ %)/).map((part, i) => (i % 2 ? el("strong", {}, part.replace(" ", "\u00a0")) : part)))),
  el("div", { class: "hero" },
    el("div", { class: "what" }, world.map((text) => el("p", {}, text)), pair ? heldOutPair(pair, data.worlds[pair.dataset]) : null),
    bars.some(Boolean) ? el("div", { class: "bars" }, bars, note(barNote[0] + seedNote)) : null),
]);

/* Rollouts of one dataset: two agents on the same start and goal. */
const rolloutsOf = (dataset) => {
  const all = data.rollouts.filter((rollout) => data.runs[rollout.run].dataset === dataset);
  const runs = [...new Set(all.map((rollout) => rollout.run))], stage = el("div");
  const score = (run) => { const one = data.series.find((other) => other.runs.includes(run)); return (one?.pairs.all?.direct ?? one?.success)?.mean ?? 0; };
  const left = runs.find((run) => data.runs[run].agent === "cta") ?? runs[0];
  const sides = [left, ...runs.filter((run) => run !== left).sort((a, b) => score(a) - score(b))].slice(0, 2);
  const ending = (rollout) => `${rollout?.outcome} ${rollout?.direct}`;
  const at = (key, run) => all.find((rollout) => rollout.key === key && rollout.run === run);
  const keys = [...new Map(all.map((rollout) => [rollout.key, rollout.label])).entries()], held = keys.filter(([key]) => key.startsWith("pair"));
  // The pair that is drawn at the top, at the first of its episodes that the two end differently.
  const drawn = data.ooc.find((study) => study.dataset === dataset)?.drawn?.pair, mine = held.filter(([name]) => name.startsWith(`${drawn}/`));
  const from = mine.length ? mine : held.length ? held : keys;
  const differs = from.find(([name]) => sides.length > 1 && sides.every((run) => at(name, run)) && ending(at(name, sides[0])) !== ending(at(name, sides[1])));
  let key = (differs || from[0])[0], playing = null;
  const show = () => {
    playing?.stop();
    const shown = [...new Set(sides)].map((run) => at(key, run)).filter(Boolean).map((rollout) => ({ ...rollout, name: `${data.runs[rollout.run].label}, ${rollout.label}` }));
    playing = shown.length ? players(shown, { world: data.worlds[dataset], titleOf: (rollout) => keyOf(data.runs[rollout.run].label) }) : null;
    put(stage, playing ? playing.node : note("No rollout of this one."));
  };
  const tasks = keys.filter(([name]) => !held.some(([other]) => other === name));
  const groups = held.length ? [["held-out pairs", held], ...(tasks.length ? [["tasks of the world", tasks]] : [])] : tasks;
  const pick = chooser(held.length ? "Pair" : "Task", groups, (value) => { key = value; show(); });
  pick.select.value = key;
  const side = runs.length > 2 ? sides.map((run, i) => {
    const choice = chooser(i ? "and" : "Agents", runs.map((other) => [other, data.runs[other].label]), (value) => { sides[i] = +value; show(); });
    choice.select.value = run;
    return choice.node;
  }) : [];
  show();
  const why = [mine.length ? "the pair drawn above" : null, differs ? "the first episode that the two end differently" : null].filter(Boolean).join(", ");
  return [data.rollouts.some((rollout) => data.runs[rollout.run].dataset !== dataset) ? el("h3", {}, dataset) : null,
    el("div", { class: "row" }, pick.node, side), stage, data.worlds[dataset] ? deskKey(data.worlds[dataset], why ? ` It opens with ${why}.` : "") : null];
};
const played = [...new Set(data.rollouts.map((rollout) => data.runs[rollout.run].dataset))];
const unseen = data.rollouts.some((rollout) => rollout.key.startsWith("pair")), both = new Set(data.rollouts.map((rollout) => rollout.run)).size > 1;
section("rollouts", unseen ? (both ? "The same unseen pair, side by side" : "An unseen pair, played") : "Rollouts", "Rollouts", played.map(rolloutsOf), data.rollouts.length ? data.rollout_notes.map(note) : null);

/* Every pair for itself. */
section("pairs", "Pair by pair", "Pairs", data.ooc.map((study) => {
  const lines = data.series.filter((one) => one.dataset === study.dataset && one.pairs.all);
  const found = [...new Set(lines.flatMap((one) => Object.keys(one.pairs)))].filter((name) => name !== "all");
  if (!found.length) return null;
  const groups = found.map((name) => ({ name: study.names[name] ?? name, bars: lines.filter((one) => one.pairs[name]).map((one) => barOf(one, one.pairs[name].direct, one.pairs[name].successes.mean)) }));
  const apart = new Set(lines.map((one) => one.data)).size > 1;
  return [data.ooc.length > 1 ? el("h3", {}, study.dataset) : null, legendOf(lines.filter((one, i) => !apart || lines.findIndex((other) => other.label === one.label) === i)),
    barChart(groups, { describe: "Direct success on each held-out pair, in %." }), note(`[[direct]] success in %; pale: by a detour.${seedNote}${apart ? " Bars of one agent: one for each kind of data, in the order of the table." : ""}`)];
}));

const curveSection = () => perDataset((dataset, lines) => {
  const scored = lines.filter((one) => one.curves.all);
  const tasks = [...new Set(scored.flatMap((one) => Object.keys(one.tasks)))].sort((a, b) => a - b);
  const metrics = [...new Set(lines.flatMap((one) => Object.keys(data.training[data.series.indexOf(one)] || {})))];
  const success = scored.length ? [["all", "success, all tasks"], ...tasks.map((task) => [task, `success, ${taskName(lines[0].dataset, task)}`])] : [];
  const choices = [...success, ...metrics.map((name) => [name, name])];
  if (!choices.length) return null;
  const pick = (choice) => lines.map((one) => {
    const curve = metrics.includes(choice) ? (data.training[data.series.indexOf(one)] || {})[choice] : one.curves[choice];
    return curve && { label: one.label, tint: tintOf(one.label), curve };
  }).filter(Boolean);
  const stage = el("div");
  const caption = (several ? "Thick: mean over seeds. Band: one standard deviation. Thin: seeds." : "One seed: no band.") + " Point at the chart, or focus it and use the arrow keys, to read values.";
  const show = (choice) => put(stage, curveChart(pick(choice), {
    caption, percent: !metrics.includes(choice), title: new Map(choices).get(choice),
    describe: (all) => `${new Map(choices).get(choice)} over training steps. ` + all.map((line) => `${line.label}: ${tenth(line.points.at(-1).mean)} at step ${whole(line.points.at(-1).step)}`).join(", "),
  }));
  show(choices[0][0]);
  const groups = tasks.map((task) => ({ name: taskName(lines[0].dataset, task), bars: scored.filter((one) => one.tasks[task]).map((one) => barOf(one, one.tasks[task])) }));
  const used = [...new Set(scored.map((one) => one.evaluations))].join(" or "), episodes = [...new Set(scored.flatMap((one) => one.episodes))].join(" or ");
  return el("div", { class: "grid" }, el("div", {}, el("div", { class: "row" }, chooser("Show", choices, show).node), stage),
    groups.length ? el("div", { id: "tasks" }, el("h3", {}, asked ? "The world’s own tasks, not held out" : "Success per task"), barChart(groups, { describe: "Success in % on each task." }),
      note(`Success in %, mean of the last ${used} evaluations of ${episodes} episodes per task.${seedNote}`)) : null);
});
section("curves", "Learning curves", "Curves", curveSection());

/* Maps of the same pairs stand side by side, others one at a time. */
let purityTables = [];
if (data.maps.length) {
  const maps = data.maps.map((stored) => ({ ...readMap(stored), label: data.runs[stored.run].label }));
  const alike = (one, other) => one.dataset === other.dataset && one.places.length === other.places.length && one.tasks.join() === other.tasks.join()
    && [0, Math.floor(one.places.length / 2)].every((i) => one.places.length === 0 || one.valuesOf(i, "state").join() === other.valuesOf(i, "state").join());
  const stage = el("div");
  let shown = null, sides = [];
  const show = (chosen) => {
    sides = chosen;
    const these = [...new Set(chosen)].map((i) => maps[i]);
    shown = analogyMaps(these, data.worlds[these[0].dataset], chosen[0]);
    const says = these.filter((map) => map.says.length);
    put(stage, shown.node,
      says.length ? el("p", { class: "says" }, says[0].says[0], " ", says.map((map) => [el("strong", {}, `${map.label}: `), map.says[1], " "]), el("span", { class: "note" }, "Level: within two standard deviations over seeds, or one point.")) : null,
      note(`${whole(these[0].pairs)} state–goal pairs of the validation data; ${these.map((map) => `${map.representation || "dual analogies"} of ${map.label}, seed ${map.seed}, step ${whole(map.step)}`).join("; ")}. ${these[0].about}`));
  };
  const firsts = maps.findIndex((map) => map.agent === "cta"), start = Math.max(0, firsts), second = maps.findIndex((map, i) => i !== start && alike(map, maps[start]));
  const choices = maps.map((map, i) => [i, map.label]);
  const left = chooser("Map", choices, (value) => show(alike(maps[+value], maps[sides.at(-1)]) && sides.length > 1 ? [+value, sides[1]] : [+value]));
  left.select.value = start;
  const right = chooser("beside", choices, (value) => show(alike(maps[+value], maps[sides[0]]) ? [sides[0], +value] : [+value]));
  if (second >= 0) right.select.value = second;
  show(second >= 0 ? [start, second] : [start]);
  section("map", "The analogy map", "Map", el("p", {}, "Each point is a state and a goal. Points lie close when the agent represents “what has to change” alike (", term("α∨"), "). Choose one to play it and to see which pairs are nearest: if analogies carry over, these have the same task in other contexts."),
    maps.length > 2 || (maps.length === 2 && second < 0) ? el("div", { class: "row" }, left.node, second >= 0 ? right.node : null) : null, stage);
  const follow = () => {
    const asked = /^#point-(\d+)-(\d+)$/.exec(location.hash);
    if (!asked || !maps[+asked[1]] || +asked[2] >= maps[+asked[1]].places.length) return;
    if (sides[0] !== +asked[1]) show([+asked[1]]);
    shown.choose(+asked[2], true);
    document.getElementById("map").scrollIntoView();
  };
  addEventListener("hashchange", follow);
  // Once the charts above have their heights.
  requestAnimationFrame(() => requestAnimationFrame(follow));
  // One table for all maps: which agent a row is about stands after what it is about; a row without a network is nobody's.
  purityTables = [...new Set(maps.flatMap((map) => map.tables.map((table) => table.title)))].map((caption) => {
    const found = maps.map((map) => [map, map.tables.find((table) => table.title === caption)]).filter(([, table]) => table);
    const rows = found.flatMap(([map, table], i) => table.rows.filter((row) => i === 0 || plain(row[1]) !== "–").map(([what, ...rest]) => [what, plain(rest[0]) === "–" ? "–" : keyOf(map.label), ...rest]));
    const [first, ...rest] = found[0][1].columns;
    return sortableTable({ caption, columns: [first, { title: "Agent" }, ...rest], rows });
  });
}

const trained = () => sortableTable({
  caption: "What was trained", notes: data.data_notes,
  columns: [{ title: "Agent" }, { title: "Data" }, { title: "Transitions", number: true }, { title: "Steps", number: true }, { title: "Seeds", number: true }, { title: "Commit" }, { title: "Hardware" }],
  rows: data.series.map((one) => {
    const run = data.runs[one.runs[0]], seen = run.provenance.dataset || {}, machine = run.provenance.hardware || {};
    const unfinished = one.steps < one.planned_steps ? ` of ${short(one.planned_steps)}` : "";
    return [
      keyOf(one.label), one.data,
      { text: seen.transitions ? whole(seen.transitions) : "–", sort: seen.transitions },
      { text: `${whole(one.steps)}${unfinished}`, sort: one.steps }, { text: String(one.seeds.length), sort: one.seeds.length },
      el("span", { class: "mono" }, (run.provenance.commit || "–").replace(/^([0-9a-f]{8})[0-9a-f]*/, "$1")),
      machine.backend && machine.backend !== "cpu" ? machine.device : machine.cpu || "–",
    ];
  }),
});
const ofPairs = () => data.ooc.map((study) => {
  const where = data.ooc.length > 1 ? `, ${study.dataset}` : "";
  const named = study.table && { ...study.table, rows: study.table.rows.map(([agent, ...rest]) => [keyOf(agent), ...rest]) };
  return [named ? sortableTable({ caption: `Held-out pairs${where}`, ...named, notes: study.notes }) : null,
    study.cut ? sortableTable({ caption: `What was cut${where}`, ...study.cut, notes: ["K: transitions that go with each event, the completing one last."] }) : null];
});
const scored = data.series.filter((one) => one.success);
const scores = () => sortableTable({
  caption: asked ? "Scores on the world’s own tasks" : "Scores", notes: [data.score_note],
  columns: [{ title: "Agent" }, { title: "Data" }, { title: "Success, %", number: true, keep: true }, { title: "95% interval", number: true }, { title: "IQM, %", number: true }, { title: "Seeds", number: true }, { title: "Steps", number: true }, { title: "Episodes", number: true }],
  rows: scored.map(({ success, ...one }) => [
    keyOf(one.label), one.data,
    { text: withSpread(success), sort: success.mean, class: "strong" },
    success.interval ? { text: `${tenth(success.interval[0])} – ${tenth(success.interval[1])}`, sort: success.interval[0] } : { text: "needs 2 seeds", sort: null, class: "faded" },
    { text: tenth(success.iqm), sort: success.iqm },
    { text: String(Object.keys(success.seeds).length), sort: Object.keys(success.seeds).length }, { text: whole(one.steps), sort: one.steps },
    { text: one.episodes.join(", "), sort: one.episodes[0] },
  ]),
});
const paperTable = (table) => sortableTable({
  caption: `Beside the paper: ${table.title}`, notes: data.paper_notes,
  columns: [{ title: "Agent" }, { title: "Data" }, { title: "Paper, %", number: true }, { title: "Ours, %", number: true }, { title: "Difference", number: true }, { title: "Ours: seeds, steps" }],
  rows: table.rows.map((row) => [
    row.agent, row.dataset,
    { text: `${row.mean} ± ${row.std} (${row.seeds} seeds)`, sort: row.mean },
    row.ours ? { text: `${tenth(row.ours.mean)}${row.ours.seeds > 1 ? ` ± ${tenth(row.ours.std)}` : ""}`, sort: row.ours.mean, class: "strong" } : { text: "–", sort: null, class: "faded" },
    row.ours ? { text: `${row.ours.mean >= row.mean ? "+" : "−"}${tenth(Math.abs(row.ours.mean - row.mean))}`, sort: row.ours.mean - row.mean } : { text: "–", sort: null, class: "faded" },
    row.ours ? `${plural(row.ours.seeds, "seed")}, ${whole(row.ours.steps)} steps` : "",
  ]),
});
const purityNote = "Purity: share of a pair’s ten nearest, by cosine, that have its task. Same task, other context: those that also start from another context. Across contexts: purity when only pairs from other contexts may be neighbours. Shuffled labels: what chance gives.";
section("tables", "Tables", "Tables", ofPairs(), scored.length ? scores() : null, data.paper.map(paperTable), data.results.map((table) => sortableTable({ caption: table.title, ...table })),
  purityTables.length ? [purityTables, note(purityNote)] : null, trained());

section("settings", "Configuration and versions", "Configuration", data.runs.map((run) => el("details", {},
  el("summary", {}, run.label),
  run.provenance.command ? el("p", { class: "mono" }, run.provenance.command) : null,
  el("h3", {}, "Settings"), settings(run.config),
  el("h3", {}, "Versions, data, hardware"), settings({ ...run.provenance, command: undefined }),
)));

fill(document.getElementById("foot"), {}, [data.foot, data.rollouts.length ? [] : data.rollout_notes].flat().map((text) => el("p", {}, prose(text))));
