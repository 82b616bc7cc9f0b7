"""Two dimensions for a map: t-SNE by openTSNE."""

import os
from typing import Any

import numpy as np

from cta import provenance
from cta.errors import CtaError

EXAGGERATED = 0.25
"""Share of the iterations with exaggerated attraction, in which clusters form."""


def check(perplexity: float, iterations: int) -> None:
    """Complain in one line about what makes no map, before anything slow."""
    if not perplexity >= 1:
        raise CtaError(f"--perplexity: a number of neighbours from 1 on, not {perplexity:g}")
    if iterations < 1:
        raise CtaError(f"--iterations: at least 1, not {iterations}")


def tsne_settings(points: int, *, perplexity: float = 30.0, iterations: int = 500, seed: int = 0) -> dict[str, Any]:
    """What fixes a map, as plain data."""
    if points < 5:
        raise CtaError(f"a map needs at least 5 pairs, not {points}")
    return {
        "name": "t-SNE",
        "library": "openTSNE",
        "version": provenance.versions(("openTSNE",))["openTSNE"],
        "metric": "euclidean",
        "perplexity": min(perplexity, (points - 1) / 3),
        "iterations": iterations,
        "exaggerated_iterations": int(EXAGGERATED * iterations),
        "exaggeration": 12,
        "initialization": "pca",
        "repulsion": "fft",
        "seed": seed,
    }


def tsne(points: np.ndarray, settings: dict[str, Any]) -> np.ndarray:
    """(N, d) → (N, 2)."""
    # Threads that wait busily cost a shared machine twice; read when the library is loaded.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    try:
        import openTSNE
        from openTSNE import affinity, initialization
    except ImportError as error:
        raise CtaError("the map needs openTSNE: pip install 'cta[report]'") from error

    points = np.asarray(points, np.float32)
    jobs = min(4, os.cpu_count() or 1)
    near = affinity.PerplexityBasedNN(
        points,
        perplexity=settings["perplexity"],
        metric=settings["metric"],
        # Trees and approximate searches pay only for many points; exact neighbours are the same on every machine.
        method="exact",
        n_jobs=jobs,
        random_state=settings["seed"],
    )
    start = initialization.pca(points, random_state=settings["seed"])
    options = {"negative_gradient_method": settings["repulsion"], "n_jobs": jobs, "random_state": settings["seed"]}
    embedding: Any = openTSNE.TSNEEmbedding(start, near, **options)
    early = settings["exaggerated_iterations"]
    embedding = embedding.optimize(early, exaggeration=settings["exaggeration"], momentum=0.5)
    return np.asarray(embedding.optimize(settings["iterations"] - early, momentum=0.8))
