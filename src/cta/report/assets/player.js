/* Rollout players: states drawn here, or a video. Both have play, pause, a slider, and the goal beside the state. */
const player = (rollout, { title, world, name }) => {
  const button = el("button", { type: "button", "aria-label": `Play ${name}` }, "▶ Play");
  const slider = el("input", { type: "range", min: 0, value: 0, step: 1, "aria-label": `Position in ${name}` });
  const place = el("output", {}, "");
  const outcome = el("span", { class: rollout.success ? "outcome good" : "outcome" }, `${rollout.success ? "✓ " : ""}${rollout.outcome}`);
  const card = el("article", { class: "player", "aria-label": name });
  const engine = rollout.states ? stateEngine(rollout, world, show) : videoEngine(rollout, show);
  slider.max = engine.last;

  function show(position, playing) {
    slider.max = engine ? engine.last : 0;
    slider.value = position;
    place.textContent = engine ? engine.words(position) : "";
    button.textContent = playing ? "❚❚ Pause" : "▶ Play";
    button.setAttribute("aria-label", `${playing ? "Pause" : "Play"} ${name}`);
  }
  button.addEventListener("click", () => engine.toggle());
  slider.addEventListener("input", () => engine.seek(+slider.value));
  fill(card, {}, [el("h3", {}, title, outcome), engine.node, el("div", { class: "controls" }, button, slider, place)]);
  engine.seek(0);
  return { node: card, stop: () => engine.pause() };
};

/** A rollout of recorded states. */
const stateEngine = (rollout, world, show) => {
  const now = el("div"), goal = el("div");
  put(goal, deskSchematic(rollout.goal, world));
  const last = rollout.states.length - 1;
  let position = 0, timer = null;
  const seek = (to) => {
    position = Math.max(0, Math.min(last, to));
    put(now, deskSchematic(rollout.states[position], world, rollout.states.slice(0, position + 1)));
    show(position, timer !== null);
  };
  const pause = () => { clearInterval(timer); timer = null; show(position, false); };
  const play = () => {
    if (position >= last) position = 0;
    timer = setInterval(() => { if (position >= last) pause(); else seek(position + 1); }, 1000 / rollout.rate);
    seek(position);
  };
  return {
    node: el("div", { class: "pair" }, el("figure", {}, now, el("figcaption", {}, "rollout")), el("figure", {}, goal, el("figcaption", {}, "goal"))),
    last, seek, pause, toggle: () => (timer === null ? play() : pause()), words: (at) => `step ${at} of ${last}`,
  };
};

/** A video, which shows the goal in its right half. The slider counts tenths of a second. */
const videoEngine = (rollout, show) => {
  const video = el("video", { muted: true, playsinline: true, preload: "auto", "aria-label": "rollout on the left, goal on the right" });
  video.muted = true;
  video.src = blobAddress(rollout.video, "video/mp4");
  const engine = {
    node: el("figure", {}, video, el("figcaption", {}, "rollout on the left, goal on the right")), last: 1,
    seek: (to) => { video.currentTime = to / 10; show(to, !video.paused); }, pause: () => video.pause(),
    toggle: () => (video.paused ? video.play() : video.pause()),
    words: (at) => `${tenth(at / 10)} of ${tenth(engine.last / 10)} s`,
  };
  const tell = () => show(Math.round(video.currentTime * 10), !video.paused && !video.ended);
  video.addEventListener("loadedmetadata", () => { engine.last = Math.max(1, Math.round(video.duration * 10)); tell(); });
  for (const event of ["timeupdate", "play", "pause", "ended"]) video.addEventListener(event, tell);
  return engine;
};
