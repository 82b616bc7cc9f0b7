"""Figures as files: PNG, or PDF and SVG for a paper, all of a file or nothing."""

from io import BytesIO
from pathlib import Path
from typing import Any, Literal

from cta.errors import CtaError
from cta.io.files import write_whole

FigureFormat = Literal["png", "pdf", "svg"]
FORMATS: tuple[FigureFormat, ...] = ("png", "pdf", "svg")


def check_suffix(path: Path) -> str:
    """The format that the suffix of a figure's file names; complains about any other."""
    kind = path.suffix.lower().removeprefix(".")
    if kind not in FORMATS:
        raise CtaError(f"{path}: figures are written as {', '.join(f'.{known}' for known in FORMATS)}")
    return kind


def save_figure(figure: Any, path: Path, **options: Any) -> Path:
    """Write a Matplotlib figure in the format that the suffix of `path` names; returns the path."""
    kind = check_suffix(path)
    content = BytesIO()
    figure.savefig(content, format=kind, **options)
    write_whole(path, content.getvalue())
    return path
