"""Hold pairs of context and task out of the data, train, and ask for them."""

from dataclasses import dataclass

from cta.cli.evaluate import episode_bar
from cta.cli.ooc_data import Cut, Rates
from cta.cli.ooc_study import Study
from cta.cli.options import Markdown, OpenedRun, PairsFile, Workers
from cta.errors import CtaError
from cta.io.files import check_writable
from cta.io.text_tables import print_table


@dataclass(frozen=True, kw_only=True)
class Evaluate(OpenedRun):
    """Ask a run's agents for held-out pairs: success, and direct success, strict and lenient.

    The pairs are those that were cut out of the run's data, or the world's own. Each has one fixed list of starts and
    goals, the same for every method, seed and step. Direct means that the task itself was carried out: strictly, that
    nothing else changed on the way; leniently, that its last completion happened in the pair's context. Both are
    counted from event logs, which stay in RUN/ooc; the counts go to RUN/ooc.csv.

      cta ooc evaluate runs/desk-play-v0/cta-20260101-120000
      cta ooc evaluate RUN --step last3
    """

    step: str = "last"
    """Checkpoints: `last`, `last3`, `all`, or steps separated by commas."""
    episodes: int = 50
    """Episodes per pair."""
    pairs: PairsFile = None
    eval_seed: int = 0
    """Seed of the lists of starts and goals."""
    workers: Workers = None
    markdown: Markdown = False

    def __call__(self) -> None:
        from cta.experiment.candidates import candidates, held_out_pairs
        from cta.experiment.run_dir import cut_of
        from cta.experiment.score_files import How, Players, ask_run, table_name
        from cta.scores.pair_table import as_table, pair_lines

        run = self.open()
        check_writable(run.path)
        cut = cut_of(run.files.provenance().get("dataset") or {})
        wanted = held_out_pairs(run.config.dataset_name, cut, self.pairs)
        name = table_name(wanted, held_out_pairs(run.config.dataset_name, cut), self.pairs)
        noise = run.config.eval_temperature, run.config.eval_gaussian
        how = How(self.episodes, self.eval_seed, self.workers, *noise)
        items = candidates(run, self.step)
        run.tell_simulator()
        with episode_bar() as progress, Players(how, progress) as players:
            rows = ask_run(run, items, wanted, players, name)
        if not rows:
            raise CtaError(f"{run.path}: every seed has diverged, so there is no policy to ask")
        for number, pair in wanted.numbered():
            print(f"pair{number}: {pair.describe(wanted.layout)}")
        print_table(as_table(pair_lines(rows)), title="direct success (success), %", markdown=self.markdown)
        print(f"rows: {run.path / name}.csv, event logs: {run.path / name}")


COMMANDS = {"cut": Cut, "evaluate": Evaluate, "study": Study, "rates": Rates}
