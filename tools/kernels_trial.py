#!/usr/bin/env python3
"""Trial of Adam inside products, and of row kernels that loop, on a GPU. JSON lines; SECONDS as argument (default 105).

Everything compiles side by side (whole steps in two child processes, one for 8 seeds and one for 1), then is timed
alone: 1. checks of each new kernel against jnp at the real shapes; 2. tiles of `move` against dots followed by Adam, and
variants of the row kernels; 3. whole steps, Adam outside (off) and inside (on) of products; 4. whole steps with the best
tile and row kernels, and without XLA's merging of products.
"""
import json, os, subprocess, sys, tempfile, time, traceback
from pathlib import Path
from concurrent.futures import ThreadPoolExecutor
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
import jax, jax.numpy as jnp, numpy as np
from jax import lax
from cta.compilation import COMMANDS
from cta.fast import adam, kernels
from cta.fast.adam import Slot, Tile, move

TINY = "tiny" in sys.argv
BUDGET = next((float(a) for a in sys.argv[1:] if a.replace(".", "").isdigit()), 105.0)
T0 = float(os.environ.get("TRIAL_T0") or time.time())
GPU = jax.default_backend() == "gpu"
jax.config.update("jax_compilation_cache_dir", tempfile.mkdtemp())  # fresh, and shares what autotuning finds
POOL = ThreadPoolExecutor(8)
ROWS = 32 if TINY else 256
LR, TAU = 3e-4, 0.005
bf16, f32 = jnp.bfloat16, jnp.float32


def left():
    return BUDGET - (time.time() - T0)


def say(**facts):
    print(json.dumps({"t": round(time.time() - T0, 1), **facts}), flush=True)


def attempt(what, do):
    try:
        return do()
    except Exception as error:
        say(what=what, error=f"{type(error).__name__}: {str(error)[:600]}", at=traceback.format_exc().splitlines()[-3:-1])
        return None


SHAPES = {  # groups, in, out, target, fan, copies
    "512x512": (2, 512, 512, False, False, 1), "512x512+target": (2, 512, 512, True, False, 1),
    "512x256": (2, 512, 256, False, False, 1), "128x1024": (2, 128, 1024, False, False, 1),
    "128x1024+target": (2, 128, 1024, True, False, 1), "128x128": (2, 128, 128, True, False, 1),
    "256x256": (1, 256, 256, False, False, 1), "256x32": (1, 256, 32, False, False, 1),
    "fan 192x512+target": (2, 192, 512, True, True, 2), "fan 96x512": (2, 96, 512, False, True, 2),
    "fan 32x128+target": (2, 32, 128, True, True, 1),
}
if TINY:
    SHAPES = {"64x32+target": (2, 64, 32, True, False, 1), "fan 32x32+target": (2, 32, 32, True, True, 2)}
SET = [name for name in ("512x512", "512x512+target", "128x1024", "fan 192x512+target") if name in SHAPES] or list(SHAPES)
"""About a third of a step's weights, in the proportions of their kinds."""


def made(name, seeds, key):
    groups, i, o, target, fan, copies = SHAPES[name]
    k = jax.random.split(jax.random.key(key), 6)
    w, m, t = (0.05 * jax.random.normal(k[n], (seeds, groups, i, o)) for n in range(3))
    v = jnp.square(m)
    low = w.astype(bf16)
    low = jnp.concatenate([low.swapaxes(1, 2)] * copies, axis=1) if fan else low
    rates = jnp.broadcast_to(adam.rates(jnp.array(3), LR, TAU), (seeds, 5))
    x = jax.random.normal(k[4], (seeds, ROWS, copies * i) if fan else (seeds, groups, ROWS, i)).astype(bf16)
    dy = 0.01 * jax.random.normal(k[5], (seeds, ROWS, groups, o) if fan else (seeds, groups, ROWS, o))
    return Slot(w, m, v, low, t if target else None, low if target else None, rates), x, dy.astype(bf16)


def plain(slot, x, dy, exact=False):
    """Dot, then Adam, then copies, as the ordinary path does it."""
    fan, copies = x.ndim == 2, x.shape[-1] // slot.weight.shape[1]
    how = {"precision": "highest"} if exact else {"preferred_element_type": bf16}
    a, b = (x.astype(f32), dy.astype(f32)) if exact else (x, dy)
    g = jnp.einsum("rk,rgn->kgn" if fan else "grk,grn->gkn", a, b, **how).astype(f32)
    if fan:
        g = g.reshape(copies, -1, *g.shape[1:]).sum(axis=0).swapaxes(0, 1)
    (b1, b2), (first, second, lr, tau, rest) = adam.DECAYS, slot.rates
    mean, square = (1 - b1) * g + b1 * slot.mean, (1 - b2) * g**2 + b2 * slot.square
    w = slot.weight - lr * (mean / first) / (jnp.sqrt(square / second) + adam.EPSILON)
    t = None if slot.target is None else tau * slot.weight + rest * slot.target

    def low(full):
        full = full.astype(bf16)
        return jnp.concatenate([full.swapaxes(0, 1)] * copies, axis=0) if fan else full

    return Slot(w, mean, square, low(w), t, None if t is None else low(t), slot.rates)


def error(found, expected):
    found, expected = (np.asarray(x, np.float32) for x in (found, expected))
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


def checks():
    """Lowered now, compiled in the background: what to do when all is quiet."""
    jobs = []
    for n, name in enumerate(SHAPES):
        def start(name=name, n=n):
            slot, x, dy = made(name, 2, n)
            both = [jax.jit(jax.vmap(f)).lower(slot, x, dy) for f in (move, lambda *a: plain(*a, exact=True))]
            jobs.append((name, (slot, x, dy), [POOL.submit(low.compile) for low in both]))
        attempt(f"lower check {name}", start)

    def one(name, data, programs):
        found, expected = (p.result()(*data) for p in programs)
        way = lambda s: s.weight - data[0].weight
        errors = {"way": error(way(found), way(expected)), **{
            f: error(getattr(found, f), getattr(expected, f))
            for f in ("mean", "square", "low", "target", "target_low") if getattr(found, f) is not None}}
        bad = {f: e for f, e in errors.items() if not e < (3e-3 if "low" in f else 1e-4)}
        say(what="check move", shape=name, ok=not bad, worst=max(errors.values()), **({"errors": errors} if bad else {}))

    return lambda: [attempt(f"check {job[0]}", lambda: one(*job)) for job in jobs]


def row_cases(seeds):
    r, w, p, b = (32, 32, 16, 8) if TINY else (256, 512, 128, 8)
    n = lambda k, *s: jax.random.normal(jax.random.key(k), (seeds, 2, *s))
    v, pv = n(0, 3, w), n(1, 3, p, b)
    u, dy, f, g = (x.astype(bf16) for x in (n(2, 5 * r, w), n(3, r, w), n(4, 5 * r, p, b), n(5, 3 * r, p, b)))
    dh = n(6, r, p).astype(bf16)
    return {
        "activate": (lambda u, v: kernels.activate.__wrapped__(u, v, bf16, live=r, fan=False), (u, v)),
        "activate_back": (lambda u, v, d: kernels.activate_back.__wrapped__(u, v, d, fan=False), (u, v, dy)),
        "pair": (lambda f, v, g, z: kernels.pair.__wrapped__(f, v, g, z, part=r, shared=3, dtype=bf16), (f, pv, g, pv)),
        "pair_back": (kernels.pair_back.__wrapped__, (f, pv, g, pv, dh)),
    }


W = kernels.Work
WORKS = {
    "activate": [W(), W(1024, 16, 1, 1), W(1024, 16, 2, 1), W(512, 16, 4, 1), W(2048, 16, 1, 2), W(4096, 16, 2, 4), W(2048, 16, 4, 4)],
    "activate_back": [W(), W(2048, 16, 2, 4), W(2048, 16, 4, 4), W(1024, 16, 8, 4), W(512, 16, 8, 1), W(1024, 16, 1, 1), W(1024, 16, 4, 1)],
    "pair": [W(), W(1024, 16, 1, 1), W(1024, 16, 2, 1), W(2048, 16, 1, 2), W(2048, 16, 4, 4), W(4096, 16, 2, 4)],
    "pair_back": [W(), W(1024, 16, 4, 4), W(1024, 16, 8, 4), W(2048, 16, 8, 8), W(2048, 16, 2, 4), W(1024, 16, 1, 1)],
}
if TINY:
    WORKS = {name: works[:2] for name, works in WORKS.items()}


def with_work(name, work, do):
    before = kernels.WORK[name]
    kernels.WORK[name] = work
    try:
        return do()
    finally:
        kernels.WORK[name] = before


LOOP = 3 if TINY else 50


def options(concurrent):
    if not GPU:
        return None
    more = {"xla_gpu_command_buffer_scheduling_mode": "CONCURRENT"} if concurrent else {}
    return {"xla_gpu_enable_command_buffer": COMMANDS, **more}


def lowered(step, carry, *rest, concurrent=False):
    """A loop of `step(carry, *rest)` as one graph."""
    loop = lambda c, *r: lax.fori_loop(0, LOOP, lambda _, c: step(c, *r), c)
    return jax.jit(loop, donate_argnums=0, compiler_options=options(concurrent)).lower(carry, *rest)


def clock(program, carry, *rest, seconds=0.15):
    """µs of one turn of the loop, the fastest of several."""
    carry = jax.block_until_ready(program(jax.tree.map(jnp.copy, carry), *rest))
    best, begin = np.inf, time.perf_counter()
    while time.perf_counter() - begin < seconds or best == np.inf:
        t = time.perf_counter()
        carry = jax.block_until_ready(program(carry, *rest))
        best = min(best, time.perf_counter() - t)
    return round(1e6 * best / LOOP, 2)


TILES = {
    8: [Tile(), Tile(64, 64, 64, 4, 3, True), Tile(64, 64, 64, 8, 3, True), Tile(64, 32, 64, 4, 3, True),
        Tile(128, 32, 64, 8, 3, True), Tile(128, 64, 64, 8, 3, False), Tile(64, 64, 128, 8, 2, False)],
    1: [Tile(), Tile(64, 32, 64, 4, 3, True), Tile(32, 64, 64, 4, 3, True), Tile(64, 64, 64, 8, 3, True)],
}
if TINY:
    TILES = {seeds: tiles[:2] for seeds, tiles in TILES.items()}


def all_moved(how):
    return lambda slots, xs, ds: [jax.vmap(how)(s, x, d) for s, x, d in zip(slots, xs, ds)]


def only_dots(carry, xs, ds):
    """The gradients alone. They change an input a little, or they would be made once."""
    out = []
    for c, x, d in zip(carry, xs, ds):
        x = x.at[(0,) * x.ndim].add(c.reshape(-1)[0] * 1e-6)
        form = "zrk,zrgn->zkgn" if x.ndim == 3 else "zgrk,zgrn->zgkn"
        out.append(jnp.einsum(form, x, d, preferred_element_type=bf16))
    return out


def tiles():
    """Lowered now; what comes back times them and returns the best tile for each number of seeds."""
    jobs = []
    for seeds, variants in TILES.items():
        slots, xs, ds = (list(x) for x in zip(*(made(name, seeds, 7 + i) for i, name in enumerate(SET))))
        zeros = jax.tree.map(jnp.zeros_like, jax.eval_shape(only_dots, [jnp.zeros(1, bf16)] * len(xs), xs, ds))
        wanted = [("move", tile, False, all_moved(lambda s, x, d, tile=tile: move(s, x, d, tile)), slots) for tile in variants]
        wanted += [("move", Tile(), True, wanted[0][3], slots)]
        wanted += [("dot then Adam", None, c, all_moved(plain), slots) for c in (False, True)]
        wanted += [("dots alone", None, False, only_dots, zeros)]
        for what, tile, concurrent, step, carry in wanted:
            low = attempt(f"{what} {tile}", lambda: lowered(step, carry, xs, ds, concurrent=concurrent))
            if low:
                jobs.append((seeds, what, tile, concurrent, (carry, xs, ds), POOL.submit(low.compile)))

    def measure():
        found, best = {}, {}
        for seeds, what, tile, concurrent, data, job in jobs:
            us = attempt(f"{what} {seeds} {tile}", lambda: clock(job.result(), *data))
            say(what=what, seeds=seeds, tile=tile, concurrent=concurrent, us=us)
            if us and what == "move" and not concurrent:
                found[seeds, tile] = us
        for seeds in TILES:
            own = {tile: us for (s, tile), us in found.items() if s == seeds}
            if own:
                best[seeds] = min(own, key=own.get)
                say(what="best tile", seeds=seeds, tile=best[seeds], of_default=round(own[best[seeds]] / own.get(Tile(), np.nan), 3))
        return best

    return measure


def row_step(name, f):
    """A turn of a loop in which each depends on the one before: the vectors move a little."""
    if name == "activate":
        return lambda v, u: v + 1e-6 * f(u, v)[1][:, :, :3].astype(f32)
    if name == "activate_back":
        return lambda v, u, d: v + 1e-6 * f(u, v, d)[1]
    if name == "pair":
        return lambda v, a, g, z: v + 1e-6 * f(a, v, g, z)[1][:, :, :3, :, None].astype(f32)
    return lambda v, a, g, z, d: v + 1e-6 * f(a, v, g, z, d)[2]


def rows():
    """Lowered now; what comes back times them and returns the best work for each number of seeds and kernel.

    After one turn of the loop all variants give the same vectors.
    """
    jobs = []
    for seeds in (8, 1):
        for name, (f, a) in row_cases(seeds).items():
            carry, rest = a[1], [x for i, x in enumerate(a) if i != 1]
            for work in WORKS[name]:
                do = lambda: lowered(row_step(name, jax.vmap(f)), carry, *rest)
                low = attempt(f"{name} {work}", lambda: with_work(name, work, do))
                if low:
                    jobs.append((seeds, name, work, carry, rest, POOL.submit(low.compile)))

    def measure():
        found, best, results = {}, {}, {}
        for seeds, name, work, carry, rest, job in jobs:
            us = attempt(f"{name} {seeds} {work}", lambda: clock(job.result(), carry, *rest, seconds=0.06))
            off = None
            if us:
                moved = np.asarray(job.result()(jnp.copy(carry), *rest) - carry)
                off = error(moved, results.setdefault((seeds, name), moved))
                found[seeds, name, work] = us
            say(what=name, seeds=seeds, work=work, us=us, way_off=off)
        for seeds in (8, 1):
            best[seeds] = {}
            for name in WORKS:
                own = {work: us for (s, n, work), us in found.items() if (s, n) == (seeds, name)}
                if own:
                    best[seeds][name] = min(own, key=own.get)
            say(what="best rows", seeds=seeds, works=best[seeds])
        return best

    return measure


class Program:
    """A whole-step program: a seed group whose learner is made under given settings."""

    states = None

    def __init__(self, name, seeds, source, dataset, *, in_products=True, tile=None, works=None, merge=True):
        from cta.bench.cases import Case
        from cta.training.fast import FastLearner
        from cta.training.learner import spec_of
        from cta.training.seeds import SeedGroup

        self.name, self.seeds, self.tile, self.works = name, seeds, Tile(*tile) if tile else adam.TILE, works or {}
        agent = Case(agent="cta", seeds=seeds, batch_size=ROWS).build()
        kind = type("Trial", (FastLearner,), {"in_products": in_products})
        learner = kind(agent, spec_of(dataset), block=500)
        if not merge:
            learner.compiler_options = {"xla_gpu_dot_merger_threshold_mb": "0"}
        self.group = SeedGroup(learner, range(seeds), source, stacked=True)
        if Program.states is None:
            Program.states = self.group._states[0]
        self.group._states = [jax.tree.map(jnp.copy, Program.states)]

    def lower(self):
        """Traced under the settings, which are module constants: one at a time."""
        before, work = adam.TILE, dict(kernels.WORK)
        adam.TILE = self.tile
        kernels.WORK.update({name: W(*how) for name, how in self.works.items()})
        jax.clear_caches()
        try:
            resident = self.group._training
            self.low = resident._run_chunk.lower(self.group._states[0], self.group._keys[0], resident._data)
        finally:
            adam.TILE = before
            kernels.WORK.update(work)
        return self

    def compile(self):
        begin = time.time()
        self.group._training._run_chunk._program = self.low.compile()
        self.compile_s = time.time() - begin
        return self

    def time(self, seconds):
        from cta.training.source import CHUNK
        steps, begin = 0, time.perf_counter()
        while time.perf_counter() - begin < seconds:
            self.group.run(CHUNK)
            steps += CHUNK
        return self.seeds * steps / (time.perf_counter() - begin)


def child(seeds, folder):
    """Whole steps of some seeds; the files of `folder` say when."""
    from cta.bench.cases import Case
    from cta.training.source import open_source
    if TINY:  # a rehearsal without a GPU
        import cta.training.source
        from test_fast import small
        cta.training.source.CHUNK = 2
        Case.build = lambda self: small("cta")
        Program.lower = lambda self: self
        Program.compile = lambda self: setattr(self, "compile_s", 0.0) or self
        Program.time = lambda self, seconds: 1.0
    dataset = Case(agent="cta", rows=30_000 if TINY else 300_000, observation_dim=83, action_dim=5).open_data()
    source = open_source(dataset)

    def prepared(wanted):
        jobs = []
        for name, how in wanted:
            program = attempt(f"lower {name} {seeds}", lambda: Program(name, seeds, source, dataset, **how).lower())
            if program:
                jobs.append((program, POOL.submit(program.compile)))
        done = [program for program, job in jobs if attempt(f"compile {program.name} {seeds}", job.result)]
        say(what="compiled", seeds=seeds, programs=[(p.name, round(p.compile_s, 1)) for p in done])
        return done

    def timed(programs, turns, seconds):
        for turn in range(-1, turns):
            for program in programs:
                rate = attempt(f"time {program.name} {seeds}", lambda: program.time(seconds if turn >= 0 else 0.01))
                if rate is not None and turn >= 0:
                    say(what="step", variant=program.name, seeds=seeds, turn=turn, seed_steps_per_s=round(rate, 1),
                        tile=program.tile, works=program.works)

    base = prepared([("on", {}), ("off", {"in_products": False})])
    (folder / f"ready-{seeds}").touch()
    if not wait(folder / f"go-{seeds}"):
        return
    timed(base, 2, 1.0)
    for program in base:
        metrics = attempt("metrics", lambda: program.group.read_metrics(program.group.step)[0])
        if metrics:
            say(what="after", variant=program.name, seeds=seeds, steps=program.group.step, bad=program.group.bad()[0],
                **{name: round(value, 5) for name, value in metrics.items() if name.endswith("loss")})
    (folder / f"done-{seeds}").touch()
    if not wait(folder / "best.json"):
        return
    best = json.loads((folder / "best.json").read_text())[str(seeds)]
    settings = {"tile": best["tile"], "works": best["works"]}
    more = prepared([("on, best rows and tile", settings), ("and products not merged", {**settings, "merge": False})])
    (folder / f"ready2-{seeds}").touch()
    if not wait(folder / f"go2-{seeds}"):
        return
    timed([*base[:1], *more], 2, 0.8)
    (folder / f"done2-{seeds}").touch()


def wait(path, other=None):
    """For a file, or for the end of a process."""
    while not path.exists() and (other is None or other.poll() is None) and left() > 0:
        time.sleep(0.05)
    return path.exists()


def parent():
    folder = Path(tempfile.mkdtemp())
    more = {"TRIAL_T0": str(T0)}
    extra = ["tiny"] if TINY else []
    children = {
        seeds: subprocess.Popen([sys.executable, __file__, "child", f"seeds={seeds}", f"folder={folder}", str(BUDGET), *extra], env={**os.environ, **more})
        for seeds in (8, 1)
    }
    try:
        check, tile, row = (attempt(f.__name__, f) for f in (checks, tiles, rows))
        say(what="lowered")
        for seeds, process in children.items():
            wait(folder / f"ready-{seeds}", process)
        if check:
            attempt("check", check)
        best_tile = (tile and attempt("tiles", tile)) or {}
        best_rows = (row and attempt("rows", row)) or {}
        (folder / "best.tmp").write_text(json.dumps({
            seeds: {"tile": best_tile.get(seeds), "works": best_rows.get(seeds, {})} for seeds in (8, 1)}))
        for seeds, process in children.items():
            (folder / f"go-{seeds}").touch()
            wait(folder / f"done-{seeds}", process)
        (folder / "best.tmp").rename(folder / "best.json")
        for seeds, process in children.items():
            wait(folder / f"ready2-{seeds}", process)
        for seeds, process in children.items():
            (folder / f"go2-{seeds}").touch()
            wait(folder / f"done2-{seeds}", process)
    finally:
        for process in children.values():
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()


if __name__ == "__main__":
    given = dict(a.split("=", 1) for a in sys.argv[1:] if "=" in a)
    say(what="start", jax=jax.__version__, device=str(jax.devices()[0]), budget=BUDGET, **given)
    if "child" in sys.argv:
        child(int(given["seeds"]), Path(given["folder"]))
    else:
        attempt("trial", parent)
        say(what="end")
