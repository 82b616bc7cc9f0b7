/* Putting the page together. */
const main = document.getElementById("content"), contents = el("div", { class: "inner" });
document.getElementById("contents").append(contents);

/** Sections by the names that the line of links has room for. */
const SHORT = { runs: "Runs", curves: "Curves", tasks: "Tasks", paper: "The paper", map: "Analogy map", settings: "Configuration" };
const section = (id, title, ...children) => {
  if (!children.flat(Infinity).some(Boolean)) return;
  main.append(el("section", { id, "aria-labelledby": `${id}-title` }, el("h2", { id: `${id}-title` }, title), children));
  contents.append(el("a", { href: `#${id}` }, SHORT[id] || title));
};
const note = (text) => el("p", { class: "note" }, prose(text));
const datasets = [...new Set(data.series.map((one) => one.data))];
const tints = new Map();
data.series.forEach((one, i) => tints.set(one, colour(datasets.length > 1 ? [...new Set(data.series.map((s) => s.label))].indexOf(one.label) : i)));
/** An agent's name with its colour, if it has one on this page. */
const keyOf = (label) => {
  const one = data.series.find((other) => other.label === label);
  return one ? el("span", { class: "key" }, swatch(tints.get(one)), label) : label;
};
const perDataset = (make) => datasets.map((dataset) => {
  const inside = make(dataset, data.series.filter((one) => one.data === dataset));
  return inside && (datasets.length > 1 ? [el("h3", {}, dataset), inside] : inside);
});

fill(document.getElementById("top"), {}, [
  el("h1", {}, data.title), data.summary.map((text, i) => el("p", { class: i ? "verdict" : "lead" }, text)),
]);

const trained = () => sortableTable({
  caption: "Runs", sort: data.series.length > 1,
  columns: [{ title: "Agent" }, { title: "Data" }, { title: "Transitions", number: true }, { title: "Steps", number: true }, { title: "Seeds", number: true }, { title: "Commit" }, { title: "Hardware" }],
  rows: data.series.map((one) => {
    const run = data.runs[one.runs[0]], seen = run.provenance.dataset || {}, machine = run.provenance.hardware || {};
    const unfinished = one.steps < one.planned_steps ? ` of ${short(one.planned_steps)}` : "";
    return [
      el("span", { class: "key" }, swatch(tints.get(one)), one.label), one.data,
      { text: seen.transitions ? whole(seen.transitions) : "–", sort: seen.transitions },
      { text: `${whole(one.steps)}${unfinished}`, sort: one.steps }, { text: String(one.seeds.length), sort: one.seeds.length },
      el("span", { class: "mono" }, (run.provenance.commit || "–").replace(/^([0-9a-f]{8})[0-9a-f]*/, "$1")),
      machine.backend && machine.backend !== "cpu" ? machine.device : machine.cpu || "–",
    ];
  }),
});
section("runs", "What was trained", trained(), data.data_notes.map(note));

const curveSection = () => perDataset((dataset, lines) => {
  const scored = lines.filter((one) => one.curves.all);
  if (!scored.length) return note(`No evaluation yet on ${dataset}.`);
  const tasks = [...new Set(scored.flatMap((one) => Object.keys(one.tasks)))].sort((a, b) => a - b);
  const metrics = [...new Set(lines.flatMap((one) => Object.keys(data.training[data.series.indexOf(one)] || {})))];
  const choices = [["all", "success, all tasks"], ...tasks.map((task) => [task, `success, ${taskName(lines[0].dataset, task)}`]), ...metrics.map((name) => [name, name])];
  const pick = (choice) => lines.map((one) => {
    const curve = metrics.includes(choice) ? (data.training[data.series.indexOf(one)] || {})[choice] : one.curves[choice];
    return curve && { label: one.label, tint: tints.get(one), curve };
  }).filter(Boolean);
  const stage = el("div"), several = lines.some((one) => one.seeds.length > 1);
  const caption = (several ? "Thick: mean over seeds. Band: one standard deviation over seeds on either side. Thin: single seeds."
    : `${lines.length > 1 ? "One seed each" : "One seed"}, so there is no band: how much another seed would differ is not known from this page.`)
    + " Point at the chart, or focus it and use the arrow keys, to read values.";
  const show = (choice) => put(stage, curveChart(pick(choice), {
    caption, percent: !metrics.includes(choice), title: new Map(choices).get(choice),
    describe: (all) => `${new Map(choices).get(choice)} over training steps. ` + all.map((line) => `${line.label}: ${tenth(line.points.at(-1).mean)} at step ${whole(line.points.at(-1).step)}`).join(", "),
  }));
  show("all");
  return [el("div", { class: "row" }, chooser("Show", choices, show).node), stage];
});
section("curves", "Learning curves", curveSection());

section("tasks", "Success per task", perDataset((dataset, lines) => {
  const tasks = [...new Set(lines.flatMap((one) => Object.keys(one.tasks)))].sort((a, b) => a - b);
  if (!tasks.length) return null;
  const chart = taskChart(lines.map((one) => ({ label: one.label, tint: tints.get(one), tasks: one.tasks })), tasks, (task) => taskName(lines[0].dataset, task));
  const key = el("div", { class: "row" }, lines.map((one) => el("span", { class: "key small" }, swatch(tints.get(one)), one.label)));
  const used = [...new Set(lines.map((one) => one.evaluations))].join(" or "), episodes = [...new Set(lines.flatMap((one) => one.episodes))].join(" or ");
  return [key, chart, note(`Mean of the last ${used} evaluations, ${episodes} episodes a task each.${lines.some((one) => one.seeds.length > 1) ? " Dots are seeds." : ""}`)];
}));

const scoreTable = () => sortableTable({
  caption: "Scores",
  columns: [{ title: "Agent" }, { title: "Data" }, { title: "Success, %", number: true }, { title: "IQM, %", number: true }, { title: "95% interval", number: true }, { title: "Seeds", number: true }, { title: "Steps", number: true }, { title: "Episodes", number: true }],
  rows: data.series.filter((one) => one.mean !== null).map((one) => [
    el("span", { class: "key" }, swatch(tints.get(one)), one.label), one.data,
    { text: withSpread(Object.values(one.scores)), sort: one.mean, class: "strong" },
    { text: tenth(one.iqm), sort: one.iqm },
    one.interval ? { text: `${tenth(one.interval[0])} – ${tenth(one.interval[1])}`, sort: one.interval[0] } : { text: one.seeds.length > 1 ? "–" : "needs 2 seeds", sort: null, class: "faded" },
    { text: String(one.seeds.length), sort: one.seeds.length }, { text: whole(one.steps), sort: one.steps },
    { text: one.episodes.join(", "), sort: one.episodes[0] },
  ]),
});
section("scores", "Scores", scoreTable(), note(data.score_note));

section("paper", "Beside the paper", data.paper.map((table) => [
  el("h3", {}, table.title),
  sortableTable({
    caption: table.title,
    columns: [{ title: "Agent" }, { title: "Data" }, { title: "Paper, %", number: true }, { title: "Ours, %", number: true }, { title: "Difference", number: true }, { title: "Ours: seeds, steps" }],
    rows: table.rows.map((row) => [
      row.agent, row.dataset,
      { text: `${row.mean} ± ${row.std} (${row.seeds} seeds)`, sort: row.mean },
      row.ours ? { text: `${tenth(row.ours.mean)}${row.ours.seeds > 1 ? ` ± ${tenth(row.ours.std)}` : ""}`, sort: row.ours.mean, class: "strong" } : { text: "–", sort: null, class: "faded" },
      row.ours ? { text: `${row.ours.mean >= row.mean ? "+" : "−"}${tenth(Math.abs(row.ours.mean - row.mean))}`, sort: row.ours.mean - row.mean } : { text: "–", sort: null, class: "faded" },
      row.ours ? `${plural(row.ours.seeds, "seed")}, ${whole(row.ours.steps)} steps` : "",
    ]),
  }),
]), data.results.map((table) => [el("h3", {}, table.title), sortableTable({ caption: table.title, ...table }), table.notes.map(note)]), data.paper_notes.map(note));

section("ooc", "Out of combination", data.ooc.map((study) => [
  data.ooc.length > 1 ? el("h3", {}, study.dataset) : null,
  study.intro.map((text) => el("p", {}, prose(text))),
  study.cut ? [el("h3", {}, study.cut.caption), sortableTable(study.cut)] : null,
  study.table ? [el("h3", {}, "Asked for the held-out pairs"), sortableTable({ caption: `Held-out pairs, ${study.dataset}`, ...study.table, rows: study.table.rows.map(([agent, ...rest]) => [keyOf(agent), ...rest]) })] : null,
  study.notes.map(note),
]));

if (data.maps.length) {
  const stage = el("div");
  const show = (place) => {
    const map = data.maps[place], run = data.runs[map.run], frames = Object.keys(map.frames).length;
    put(stage, analogyMap(map, data.worlds[run.dataset]),
      note(`${whole(map.pairs)} state–goal pairs of the validation data, dual analogies of ${run.agent}, seed ${map.seed}, step ${whole(map.step)}. ${map.about}${frames ? ` ${whole(frames)} pairs have frames; the others are drawn from numbers of their state.` : ""}`),
      map.tables.map((table) => [el("h3", {}, table.title), sortableTable({ caption: table.title, ...table })]),
      map.tables.length ? note(`Purity: share of a pair's ten nearest ${map.among || "pairs of other episodes"}, by cosine, that have its task. Same task, other context: those that also start from another context. Across contexts: purity when only pairs from other contexts may be neighbours. Shuffled labels: what chance gives.`) : null);
  };
  const pick = data.maps.length > 1 ? el("div", { class: "row" }, chooser("Run", data.maps.map((map, i) => [i, data.runs[map.run].label]), (value) => show(+value)).node) : null;
  show(0);
  section("map", "The analogy map", el("p", {}, "Each point is a state and a goal. Its place comes from the dual analogy between the two: points lie close when the agent represents “what has to change” alike. Point at one to see it, choose it to see the pairs with the nearest analogies."), pick, stage);
}

const rolloutSection = () => {
  const datasets = [...new Set(data.rollouts.map((rollout) => data.runs[rollout.run].dataset))];
  return datasets.map((dataset) => {
    const all = data.rollouts.filter((rollout) => data.runs[rollout.run].dataset === dataset);
    const choices = [...new Map(all.map((r) => [r.key, r.label])).entries()];
    const stage = el("div", { class: "players" });
    let playing = [];
    const show = (key) => {
      playing.forEach((one) => one.stop());
      const chosen = all.filter((r) => r.key === key);
      playing = chosen.map((r) => {
        const run = data.runs[r.run];
        return player(r, { world: data.worlds[dataset], title: el("span", {}, run.label), name: `${run.label}, ${r.label}` });
      });
      put(stage, playing.map((one) => one.node));
    };
    show(choices[0][0]);
    return [datasets.length > 1 ? el("h3", {}, dataset) : null, el("div", { class: "row" }, chooser("Task", choices, show).node), stage, data.worlds[dataset] ? deskKey(data.worlds[dataset]) : null];
  });
};
section("rollouts", "Rollouts", data.rollouts.length ? rolloutSection() : null, data.rollout_notes.map(note));

section("settings", "Configuration and versions", data.runs.map((run) => el("details", {},
  el("summary", {}, run.label),
  run.provenance.command ? el("p", { class: "mono" }, run.provenance.command) : null,
  el("h3", {}, "Settings"), settings(run.config),
  el("h3", {}, "Versions, data, hardware"), settings({ ...run.provenance, command: undefined }),
)));

fill(document.getElementById("foot"), {}, data.foot.map((text) => el("p", {}, prose(text))));
