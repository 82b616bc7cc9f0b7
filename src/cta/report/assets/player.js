/* Rollouts side by side: states drawn here, or videos. One button and one slider move all of them. */
const players = (rollouts, { world, titleOf }) => {
  const engines = rollouts.map((rollout) => (rollout.states ? stateEngine(rollout, world) : videoEngine(rollout)));
  const name = rollouts.map((rollout) => rollout.name).join(" and ");
  // What is to be reached is drawn once where it is the same for all.
  const goals = new Set(rollouts.map((rollout) => JSON.stringify(rollout.goal ?? null)));
  const common = goals.size === 1 && rollouts[0].goal;
  const button = el("button", { type: "button", class: "play", onclick: () => (timer === null ? play() : pause()) });
  const slider = el("input", { type: "range", min: 0, value: 0, step: 1, "aria-label": `Position in ${name}`, oninput: () => { const to = +slider.value; pause(); seek(to); } });
  const place = el("output", {}, ""), what = rollouts.length > 1 ? "Play both" : "Play";
  let position = 0, timer = null;
  const last = () => Math.max(...engines.map((engine) => engine.last));
  const show = () => {
    slider.max = last();
    slider.value = position;
    place.textContent = engines[0].words(position, last());
    button.textContent = timer === null ? `▶ ${what}` : "❚❚ Pause";
  };
  const seek = (to) => {
    position = Math.max(0, Math.min(last(), to));
    engines.forEach((engine) => engine.seek(position));
    show();
  };
  const pause = () => { clearInterval(timer); timer = null; engines.forEach((engine) => engine.pause?.()); show(); };
  const play = () => {
    if (position >= last()) seek(0);
    engines.forEach((engine) => engine.play?.());
    timer = setInterval(() => {
      if (engines[0].clock) position = Math.max(...engines.map((engine) => engine.clock()));
      else seek(position + 1);
      if (position >= last()) pause(); else show();
    }, 1000 / (rollouts[0].rate ?? 10));
    show();
  };
  engines.forEach((engine) => { engine.ready = show; });
  const card = (rollout, i) => el("article", { class: "player", "aria-label": rollout.name },
    el("h3", {}, titleOf(rollout), el("span", { class: rollout.success ? "outcome good" : "outcome" }, `${rollout.success ? "✓ " : ""}${rollout.outcome}`)),
    rollout.goal && !common ? el("div", { class: "pair" }, engines[i].node, el("figure", {}, deskSchematic(rollout.goal, world), el("figcaption", {}, "goal"))) : engines[i].node,
    rollout.events ? eventList(rollout, engines[i], (at) => { pause(); seek(at); }) : null);
  seek(0);
  return {
    stop: pause,
    node: el("div", {},
      el("div", { class: `players${common ? " common" : ""}` },
        common ? el("article", { class: "player wanted" }, el("h3", {}, "The goal"), deskSchematic(rollouts[0].goal, world)) : null, rollouts.map(card)),
      el("div", { class: "controls" }, button, slider, place)),
  };
};

const FEW = 6;
/** What changed in an episode, in order; each is a button that goes there. Of many the first are shown. */
const eventList = (rollout, engine, go) => {
  const words = { task: "the task", elsewhere: "the task, in another context", aside: "not the task" };
  const nodes = rollout.events.map(([at, text, kind], i) => el("button", { type: "button", class: `event ${kind}`, title: words[kind], hidden: i >= FEW,
    "aria-label": `step ${at}: ${text} (${words[kind]})`, onclick: () => go(at) }, el("span", { class: "at" }, at), text));
  engine.seen = (position) => nodes.forEach((node, i) => node.classList.toggle("past", rollout.events[i][0] <= position));
  const head = rollout.success && !rollout.direct ? "The detour:" : nodes.length > 1 ? "What changed:" : nodes.length ? "One change:" : "Nothing changed.";
  const more = nodes.length > FEW ? el("button", { type: "button", class: "event", onclick: () => { nodes.forEach((node) => { node.hidden = false; }); more.remove(); } }, `${nodes.length - FEW} more`) : null;
  return el("div", { class: "events" }, el("span", { class: "note" }, head), nodes, more);
};

/** A rollout of recorded states. */
const stateEngine = (rollout, world) => {
  const node = el("figure", {}), engine = {
    node, last: rollout.states.length - 1, words: (at, last) => `step ${at} of ${last}`,
    seek: (to) => {
      const at = Math.min(engine.last, to);
      put(node, deskSchematic(rollout.states[at], world, { trail: rollout.states.slice(0, at + 1) }));
      engine.seen?.(at);
    },
  };
  return engine;
};

/** A video, which shows the goal in its right half. Positions are tenths of a second. */
const videoEngine = (rollout) => {
  const video = el("video", { muted: true, playsinline: true, preload: "auto", "aria-label": "rollout on the left, goal on the right" });
  video.muted = true;
  video.src = blobAddress(rollout.video, "video/mp4");
  const engine = {
    node: el("figure", {}, video, el("figcaption", {}, "rollout on the left, goal on the right")), last: 1,
    seek: (to) => { video.currentTime = Math.min(engine.last, to) / 10; },
    play: () => { if (!video.ended) video.play(); }, pause: () => video.pause(),
    clock: () => Math.round(video.currentTime * 10), words: (at, last) => `${tenth(at / 10)} of ${tenth(last / 10)} s`,
  };
  video.addEventListener("loadedmetadata", () => { engine.last = Math.max(1, Math.round(video.duration * 10)); engine.ready?.(); });
  return engine;
};
