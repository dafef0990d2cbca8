"""The documentation site: `make docs` builds it into site/ with every warning an error."""

from __future__ import annotations

from importlib.metadata import version as installed

project = "Trivet"
author = "The Trivet authors"
version = release = installed("trivet")
extensions = ["myst_parser"]
html_theme = "furo"
html_title = f"Trivet {version}"
html_static_path: list[str] = []
html_show_sourcelink = False
html_copy_source = False
nitpicky = True
highlight_language = "none"
# Anchors as the pages of a repository have them, so that one link serves both.
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
exclude_patterns = ["_build"]
