"""How Sphinx makes the site of these pages: `make docs`.

The source is the whole repository, so that links between pages are the same here and on
the site.
"""

import sys
from importlib.metadata import version as version_of
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "docs")]

project = "kafka_tx"
project_copyright = "the authors of kafka_tx"
version = release = version_of("kafka-tx")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "site_parts"]
root_doc = "docs/index"
include_patterns = ["docs/**.md", "*.md", "benchmarks/README.md", "grafana/README.md"]
exclude_patterns = [
    *(".*", "build", "dist", "kafka_tx", "tests", "integration", "examples"),
    "**/__pycache__",
]

myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]

autodoc_member_order = "groupwise"
autodoc_typehints = "description"
autodoc_inherit_docstrings = True
napoleon_numpy_docstring = False

html_theme = "furo"
html_title = f"kafka_tx {version}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_search_scorer = "docs/static/scorer.js"
html_extra_path = ["front"]
html_copy_source = False
html_show_sphinx = False
