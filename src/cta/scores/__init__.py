"""Scores as data: one schema, the folders that hold them, their arithmetic, and tables beside the paper's.

`schema` has the columns and the one reader, `store` keeps rows and records, `statistics` is all the arithmetic, `paper`
has its numbers and says when a cell is complete, `tables` puts ours beside them. Nothing in here plays an episode.
"""
