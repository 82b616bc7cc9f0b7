"""Scores as data: one schema, the folders that hold them, their arithmetic, and tables beside the paper's.

`schema` has the columns and the one reader, `store` keeps rows and records, `statistics` is all the arithmetic,
`protocol` says when a cell is complete, `tables` puts ours beside the paper's. Nothing in here plays an episode.
"""
