"""Small worlds in which the paper's claims can be checked exactly."""

from itertools import product

import numpy as np

from cta.errors import CtaError
from cta.theory.lights import LightsOut
from cta.theory.mdp import MDP, check_distributions

_MAX_DENSE_CELLS = 9


def _from_rule(coordinates: np.ndarray, step, actions: tuple[str, ...], name: str) -> MDP:
    """Tabulate `step(coordinate tuple, action index) → coordinate tuple`."""
    index = {tuple(int(v) for v in row): i for i, row in enumerate(coordinates)}
    table = [[index[step(key, a)] for a in range(len(actions))] for key in index]
    return MDP.deterministic(np.array(table), coordinates=coordinates, actions=actions, name=name)


def sliders(*sizes: int, simultaneous: bool = False) -> MDP:
    """Sliders on `sizes` positions each, moved by unit steps.

    One may move per step (d* = Σ|Δ_i|), or, with `simultaneous`, all may (d* = max|Δ_i|). Standing still is an action
    in both. States are ordered with the last slider fastest; `coordinates` holds the positions.
    """
    if len(sizes) < 1 or min(sizes) < 1:
        raise CtaError(f"sliders: sizes {sizes} must be at least one positive number of positions")
    moves = [m for m in product((0, -1, 1), repeat=len(sizes)) if simultaneous or np.count_nonzero(m) <= 1]
    moves.sort(key=lambda m: (np.count_nonzero(m), m))
    coordinates = np.array(list(product(*(range(n) for n in sizes))))

    def step(key: tuple[int, ...], a: int) -> tuple[int, ...]:
        return tuple(min(max(k + m, 0), n - 1) for k, m, n in zip(key, moves[a], sizes, strict=True))

    names = tuple(
        "stay" if not any(m) else " ".join(f"{i + 1}{'+' if v > 0 else '-'}" for i, v in enumerate(m) if v)
        for m in moves
    )
    label = "×".join(map(str, sizes)) + (" simultaneous sliders" if simultaneous else " additive sliders")
    return _from_rule(coordinates, step, names, label)


def locked_slider(n: int) -> MDP:
    """One slider gated by a lock bit (1 = open): actions stay, left, right, toggle. Coordinates (position, bit)."""
    if n < 2:
        raise CtaError(f"locked_slider: n = {n}, a slider needs at least two positions")
    coordinates = np.array(list(product(range(n), (0, 1))))

    def step(key: tuple[int, ...], a: int) -> tuple[int, ...]:
        position, bit = key
        if a == 3:
            return position, 1 - bit
        return (min(max(position + (0, -1, 1)[a], 0), n - 1) if bit else position), bit

    return _from_rule(coordinates, step, ("stay", "left", "right", "toggle"), f"locked slider of {n}")


def desk_skeleton() -> MDP:
    """The desk world with the gripper removed: 32 states, coordinates (drawer, window, tray, bit 0, bit 1).

    Bit 0 unlocks the drawer, bit 1 the window, the tray has no lock. One action flips one part (if its lock is open) or
    one bit, so that d* counts subtasks instead of time steps.
    """
    gate = (3, 4, None, None, None)

    def step(key: tuple[int, ...], a: int) -> tuple[int, ...]:
        bit = gate[a]
        if bit is not None and key[bit] == 0:
            return key
        return tuple(1 - v if i == a else v for i, v in enumerate(key))

    coordinates = np.array(list(product((0, 1), repeat=5)))
    return _from_rule(coordinates, step, ("drawer", "window", "tray", "button 0", "button 1"), "desk skeleton")


def lights_out(rows: int, columns: int) -> MDP:
    """Lights Out over all 2^(rows·columns) light patterns; coordinates are the lights.

    Dense, hence only up to nine lights; `LightsOut` answers the same questions for larger boards from the group.
    """
    board = LightsOut(rows, columns)
    if board.cells > _MAX_DENSE_CELLS:
        raise CtaError(f"lights_out({rows}, {columns}): 2^{board.cells} states are too many for a table, use LightsOut")
    states = np.arange(2**board.cells)
    successors = states[:, None] ^ board.presses[None, :]
    bits = (states[:, None] >> np.arange(board.cells)) & 1
    names = tuple(f"press {i}" for i in range(board.cells))
    return MDP.deterministic(successors, coordinates=bits, actions=names, name=f"{rows}×{columns} lights out")


def one_way_door() -> MDP:
    """0 → 1 → 2 and no way back: actions stay, forward."""
    return MDP.deterministic(np.array([[0, 1], [1, 2], [2, 2]]), actions=("stay", "forward"), name="one-way door")


def directed_cycle(n: int) -> MDP:
    """One action, s → s+1 mod n: the smallest process whose distance is asymmetric."""
    return MDP.deterministic(((np.arange(n) + 1) % n)[:, None], name=f"directed cycle of {n}")


def random_mdp(
    seed: int, *, states: int = 6, actions: int = 3, concentration: float = 0.4, deterministic: bool = False
) -> MDP:
    """Independent rows: Dirichlet(concentration) laws, or uniform successors when `deterministic`."""
    rng = np.random.default_rng(seed)
    if deterministic:
        return MDP.deterministic(rng.integers(0, states, (states, actions)), name=f"random graph {seed}")
    rows = rng.dirichlet(np.full(states, concentration), size=(states, actions))
    return MDP(rows / rows.sum(axis=-1, keepdims=True), name=f"random mdp {seed}")


def random_graph(seed: int, *, states: int = 6, degree: int = 2, undirected: bool = False) -> MDP:
    """A random graph without self-loops: `degree` out-edges per node, or, when `undirected`, moves along a random
    connected graph (a random tree plus a few edges); absent moves stand still."""
    rng = np.random.default_rng(seed)
    if not undirected:
        table = [rng.permutation(np.delete(np.arange(states), s))[:degree] for s in range(states)]
        return MDP.deterministic(np.array(table), name=f"random {degree}-out graph {seed}")
    edges = {(s, int(rng.integers(0, s))) for s in range(1, states)}
    edges |= {(max(a, b), min(a, b)) for a, b in rng.integers(0, states, (degree, 2)).tolist() if a != b}
    neighbours = [sorted({b for a, b in edges if a == s} | {a for a, b in edges if b == s}) for s in range(states)]
    width = max(map(len, neighbours))
    table = [row + [s] * (width - len(row)) for s, row in enumerate(neighbours)]
    return MDP.deterministic(np.array(table), name=f"random undirected graph {seed}")


def exogenous_product(mdp: MDP, chain: np.ndarray) -> MDP:
    """The process (z, e) in which z follows `mdp` and e follows the Markov chain `chain` (E, E) on its own.

    State index z·E + e; coordinates (z, e). With the endogenous reading z this satisfies every assumption of the paper.
    """
    chain = np.asarray(chain, float)
    if chain.ndim != 2 or chain.shape[0] != chain.shape[1]:
        raise CtaError(f"exogenous_product: the chain has shape {chain.shape}, expected a square matrix")
    check_distributions(chain, "exogenous chain")
    n, k, e = mdp.n_states, mdp.n_actions, len(chain)
    P = np.einsum("zay,ef->zeayf", mdp.P, chain).reshape(n * e, k, n * e)
    coordinates = np.array(list(product(range(n), range(e))))
    return MDP(P, coordinates=coordinates, actions=mdp.actions, name=f"{mdp.name} × chain of {e}")
