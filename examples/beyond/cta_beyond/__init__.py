"""Candidates beside CTA, each an agent in one short file: two equations, a prediction, and what refutes it."""

from cta_beyond import best_of, composed, distance, effect, horizon, regular, stitched, transitive, turned

__all__ = ["best_of", "composed", "distance", "effect", "horizon", "regular", "stitched", "transitive", "turned"]
