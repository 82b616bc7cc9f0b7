"""What to train next, and what a budget has room for. Pure arithmetic: no clock, no files."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cta.reproduce.plan import PlannedCell

TrainSeconds = Callable[[PlannedCell, int, int], float | None]
"""(cell, seeds together, steps) → seconds, or None if nothing is known yet."""


@dataclass(frozen=True)
class Option:
    """Something to train: seeds that nobody has begun (of which some may be taken), or a run to continue as it is."""

    cell: PlannedCell
    seeds: tuple[int, ...]
    steps: int
    fixed: bool = False


@dataclass(frozen=True)
class Choice:
    """Seeds of a cell to train together, from `start` to `end`."""

    cell: PlannedCell
    seeds: tuple[int, ...]
    steps: int
    start: float
    end: float


@dataclass(frozen=True)
class Schedule:
    """Choices in order, the datasets to generate in order with the time each is ready, and what has no room."""

    choices: tuple[Choice, ...]
    generate: tuple[tuple[str, float], ...]
    left: tuple[Option, ...]


def schedule(
    options: Sequence[Option],
    *,
    now: float,
    deadline: float | None,
    accelerator_free: float,
    ready: dict[str, float],
    generate_seconds: Callable[[PlannedCell], float],
    train_seconds: TrainSeconds,
    certain: Callable[[PlannedCell], bool] = lambda cell: True,
    partial: bool = False,
) -> Schedule:
    """Fill the time up to the deadline in the plan's order.

    `ready` maps datasets that exist or are being generated to when they can be read; others are generated one after the
    other. The accelerator never waits for data while another option has its data. Of a cell whose seeds do not all fit
    as many are taken as do; steps are never cut. A cell whose speed is not `certain` is tried with all its seeds if it
    would end in time at twice the speed, since measuring takes a minute and a wrong guess would cost the slot. With
    `partial` what does not fit is begun too, last.
    """
    ready = dict(ready)
    free, generator = accelerator_free, max([now, *(at for at in ready.values() if at > now)])
    waiting, choices, generated = list(options), list[Choice](), list[tuple[str, float]]()

    def data_at(cell: PlannedCell) -> float:
        return ready[cell.material] if cell.material in ready else generator + generate_seconds(cell)

    def fitting(option: Option) -> Choice | None:
        start = max(free, data_at(option.cell))
        counts = [len(option.seeds)] if option.fixed else range(len(option.seeds), 0, -1)
        for count in counts:
            seconds = train_seconds(option.cell, count, option.steps)
            end = start + (seconds or 0.0)
            soonest = end if certain(option.cell) else start + (seconds or 0.0) / 2
            if deadline is None or (start < deadline and soonest <= deadline):
                return Choice(option.cell, option.seeds[:count], option.steps, start, end)
        return None

    def begin(option: Option, choice: Choice) -> None:
        nonlocal free, generator
        if choice.cell.material not in ready:
            generator = ready[choice.cell.material] = data_at(choice.cell)
            generated.append((choice.cell.material, generator))
        choices.append(choice)
        free = choice.end
        waiting.remove(option)
        rest = option.seeds[len(choice.seeds) :]
        if rest:
            left.append(Option(option.cell, rest, option.steps))

    left: list[Option] = []
    while waiting:
        possible = [(option, choice) for option in waiting if (choice := fitting(option)) is not None]
        if not possible:
            break
        # In the plan's order among those whose data are there; otherwise whose data come first.
        begin(*min(possible, key=lambda pair: max(free, data_at(pair[0].cell))))
    late = [option for option in waiting if deadline is None or max(free, data_at(option.cell)) < deadline]
    if partial and late:
        start = max(free, data_at(late[0].cell))
        seconds = train_seconds(late[0].cell, len(late[0].seeds), late[0].steps) or 0.0
        begin(late[0], Choice(late[0].cell, late[0].seeds, late[0].steps, start, start + seconds))
    return Schedule(tuple(choices), tuple(generated), (*left, *waiting))
