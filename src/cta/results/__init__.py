"""Scores as data: the files, what produced each of them, and the tables and curves made from them.

`store` keeps rows and records, `protocol` says when a cell is complete, `tables` puts ours beside the paper's, `curves`
draws. None of these needs JAX; `weights` and `scoring` do.
"""
