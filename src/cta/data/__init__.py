"""Trajectories: plain arrays with episode bounds, read from and written to OGBench's files."""

from cta.data.dataset import TrajectoryDataset
from cta.data.locations import DatasetFiles, dataset_folder, environment_name, resolve

__all__ = ["DatasetFiles", "TrajectoryDataset", "dataset_folder", "environment_name", "resolve"]
