"""OGBench's two forms of a dataset in memory, which it also reads and writes: what our arrays must come to."""

import numpy as np

from cta.data import TrajectoryDataset


def compact(data: TrajectoryDataset, *, info: bool = False) -> dict[str, np.ndarray]:
    """OGBench's compact form: all rows; `valids` = has a next row; `terminals` on an episode's last two rows."""
    last = data.terminals
    before_last = np.append(last[1:], True)
    view = {
        "observations": data.observations,
        "actions": data.actions,
        "terminals": (last | before_last).astype(np.float32),
        "valids": (~last).astype(np.float32),
    }
    return view | (data.info if info else {})


def regular(data: TrajectoryDataset, *, info: bool = False) -> dict[str, np.ndarray]:
    """OGBench's regular form: one row a transition, with `next_observations`; a copy of the observations."""
    rows = data.valid_rows
    view = {
        "observations": data.observations[rows],
        "actions": data.actions[rows],
        "terminals": data.terminals[rows + 1].astype(np.float32),
        "next_observations": data.observations[rows + 1],
    }
    return view | ({key: values[rows] for key, values in data.info.items()} if info else {})
