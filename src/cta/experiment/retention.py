"""Which checkpoints a run keeps."""

from collections.abc import Collection, Mapping, Sequence

from cta.evaluation.episodes import LAST_EVALUATIONS


def steps_to_keep(
    steps: Sequence[int],
    *,
    last: int,
    planned: Collection[int],
    evaluated: Collection[int],
    unscored: Collection[int],
    healthy: Mapping[int, list[bool] | None],
) -> set[int]:
    """Of the stored `steps`: the `last` few (0: all), those a score comes from, and what may be needed again.

    The last few are `planned` ones: a checkpoint that a signal left stays until there is a newer one. A score is the
    mean of the last three evaluations, so the last three `evaluated` steps stay; so do those whose evaluation is still
    to be done, and the newest one of every seed from before its numbers went bad.
    """
    if last == 0:
        return set(steps)
    ordered = sorted(steps)
    kept = {*ordered[-1:], *[step for step in ordered if step in planned][-last:]}
    kept |= set([step for step in ordered if step in evaluated][-LAST_EVALUATIONS:])
    kept |= set(ordered) & set(unscored)
    newest_good: dict[int, int] = {}
    for step in ordered:
        newest_good |= {seed: step for seed, good in enumerate(healthy.get(step) or []) if good}
    return kept | set(newest_good.values())
