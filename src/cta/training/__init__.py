"""The training loop's parts: learner, seeds, checkpoints, kept programs."""
