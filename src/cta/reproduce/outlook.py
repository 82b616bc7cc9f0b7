"""The schedule in words, before anything is started."""

from cta.reproduce.board import clock
from cta.reproduce.crew import SCORERS
from cta.reproduce.driver import Driver
from cta.reproduce.work import Workspace
from cta.results.protocol import short_list, short_steps


def outlook(driver: Driver, *, device: str) -> str:
    """Who does what when, on which estimates, and what has no room."""
    ahead = driver.forecast.ahead(driver.failed)
    rates, space, options = driver.rates, driver.space, driver.options
    zero = driver.began
    lines = [f"device {device}, {options.cores} cores, " + _budget(driver)]
    cores_free = 0.0
    timed: list[tuple[float, str]] = []
    for material, ready in ahead.generate:
        took = driver.forecast.data_seconds(next(cell for cell in space.plan.cells if cell.material == material))
        timed.append((ready - zero - took, f"to {clock(ready - zero)}  cores  generate {material}"))
        cores_free = max(cores_free, ready - zero)
    for choice in ahead.choices:
        cell, start, end = choice.cell, choice.start - zero, choice.end - zero
        known = rates.speed(cell.agent, cell.dataset, len(choice.seeds))
        speed = f"{known.rate:,.0f} seed-steps/s, {known.source}" if known else "speed unknown"
        if not rates.known(cell.agent):
            speed += "; measured when it runs, with fewer seeds if it proves too slow"
        seeds = short_list(choice.seeds)
        timed.append((start, f"to {clock(end)}  device train {cell.name}, seeds {seeds} ({speed})"))
        if options.later:
            continue
        for point in cell.points:
            ready = end - (end - start) * (cell.steps - point) / choice.steps
            begin = max(ready, cores_free)
            episodes = len(choice.seeds) * cell.tasks * cell.episodes
            cores_free = begin + rates.score_seconds(episodes, SCORERS * options.share)
            what = f"score {cell.name} at {short_steps(point)}, seeds {seeds}"
            timed.append((begin, f"to {clock(cores_free)}  cores  {what}"))
    lines += [f"{clock(start):>8} {text}" for start, text in sorted(timed, key=lambda item: item[0])]
    if not timed:
        lines.append("nothing to train" + (" that fits" if ahead.left else ""))
    if not any(space.left(cell) for cell in space.plan.cells):
        lines.append(done(space))
    for option in ahead.left:
        took = rates.train_seconds(option.cell.agent, option.cell.dataset, 1, option.steps)
        alone = "" if took is None else f" (to train one seed, once its data are there, takes about {clock(took)})"
        lines.append(f"left: {option.cell.name}, seeds {short_list(option.seeds)}{alone}")
    waiting = [item for cell in space.plan.cells for item in space.pending(cell)]
    lines += [f"to score now: {item.name}" for item in waiting]
    if not options.later:
        weights = "; what is not scored in time is kept as weights" if options.packs else ""
        lines.append(f"scoring beside training: {SCORERS} processes with {options.share} workers each{weights}")
    return "\n".join(lines)


def done(space: Workspace) -> str:
    """Of a plan with nothing left to do, in a line."""
    return f"the plan is done: {space.results.folder} has all of it; another --out makes it anew"


def _budget(driver: Driver) -> str:
    budget = driver.options.budget
    return (
        "no budget" if budget is None else f"budget {clock(budget)} of which {driver.options.reserve:.0f} s for ending"
    )
