"""What the site has beside the pages in docs/: the help of every command, the executed tutorial, and the files of the
repository that pages link to. MkDocs calls these functions (see mkdocs.yml).

In the repository a link leads to the file itself. On the site the file lies under `repository/`, so that both work.
"""

import base64
import os
import re
from pathlib import Path
from typing import Any

import nbformat
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[1]
DOCS, NOTEBOOK, COPIES = ROOT / "docs", ROOT / "docs/tutorial.ipynb", "repository"
LINK = re.compile(r"(\]\()(?!https?:|#|data:)([^)#\s]+)")
COMMANDS = "<!-- commands -->"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the tutorial and whatever pages link to outside of the documentation."""
    files.append(File.generated(config, "tutorial.md", content=notebook_page(NOTEBOOK)))
    for name in ("SECURITY.md", "CHANGELOG.md"):
        _add(ROOT / name, files, config)
    for page in [file for file in files if file.src_uri.endswith(".md")]:
        for _, target in LINK.findall(page.content_string):
            path = (_source(page).parent / target).resolve()
            if path.exists() and _place(path) not in files.src_uris:
                _add(path, files, config)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Fill in the commands, and lead links to where the site has their targets."""
    if COMMANDS in markdown:
        markdown = markdown.replace(COMMANDS, commands())
    here = Path(page.file.src_uri).parent

    def lead(link: re.Match[str]) -> str:
        path = (_source(page.file).parent / link[2]).resolve()
        return link[1] + (os.path.relpath(_place(path), here) if path.is_relative_to(ROOT) else link[2])

    return LINK.sub(lead, markdown)


def commands() -> str:
    """The help of every command, as it is printed at 80 columns."""
    os.environ.update(COLUMNS="80", NO_COLOR="1")
    from cta.cli.completion import help_pages

    pages = []
    for words, text in help_pages():
        pages.append(f"{'#' * (len(words) + 1)} cta {' '.join(words)}\n\n```text\n{text.strip()}\n```\n")
    return "\n".join(pages)


def notebook_page(path: Path) -> str:
    """A notebook as Markdown with what its cells print and draw; CTA_SITE_QUICK leaves out the execution."""
    notebook: Any = nbformat.read(path, as_version=4)
    if not os.environ.get("CTA_SITE_QUICK"):
        NotebookClient(notebook, timeout=1800, resources={"metadata": {"path": str(ROOT / "build")}}).execute()
    parts = []
    for cell in notebook.cells:
        parts.append(cell.source if cell.cell_type == "markdown" else f"```python\n{cell.source}\n```")
        parts += [_shown(output) for output in cell.get("outputs", ())]
    return "\n\n".join(parts) + "\n"


def _shown(output: Any) -> str:
    data = output.get("data", {})
    if "image/png" in data:
        picture = base64.b64encode(base64.b64decode(data["image/png"])).decode()
        return f"![what the cell draws](data:image/png;base64,{picture})"
    return f"```text\n{(output.get('text') or data.get('text/plain', '')).rstrip()}\n```"


def _source(file: File) -> Path:
    """The file of the repository that a page is made of."""
    inside = file.src_uri.removeprefix(f"{COPIES}/")
    return ROOT / inside if inside != file.src_uri else DOCS / inside


def _place(path: Path) -> str:
    """Where the site has a file or folder of the repository."""
    if path == NOTEBOOK:
        return "tutorial.md"
    if path == ROOT / "README.md":
        return "index.md"
    if path.is_relative_to(DOCS) and not path.is_relative_to(DOCS / "measurements"):
        return path.relative_to(DOCS).as_posix()
    place = f"{COPIES}/{path.relative_to(ROOT).as_posix()}"
    return f"{place}/index.md" if path.is_dir() else place


def _add(path: Path, files: Files, config: MkDocsConfig) -> None:
    """A file as it is; a folder as a list of links to its files."""
    if path.is_dir():
        inside = [file for file in sorted(path.rglob("*")) if file.is_file() and "__pycache__" not in file.parts]
        for file in inside:
            _add(file, files, config)
        lines = [f"* [{name}]({name})" for name in (file.relative_to(path).as_posix() for file in inside)]
        title = f"# {path.relative_to(ROOT).as_posix()}\n\nFiles of the repository.\n\n"
        files.append(File.generated(config, _place(path), content=title + "\n".join(lines) + "\n"))
    elif _place(path) not in files.src_uris:
        files.append(File.generated(config, _place(path), abs_src_path=str(path)))
