"""Sphinx's configuration; docs/site/build.py copies it beside the pages."""
project = "Halftape"
extensions = ["myst_parser"]
html_theme = "furo"
html_title = "Halftape"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
myst_heading_anchors = 4  # the anchors that forges give to headings
pygments_style, pygments_dark_style = "default", "github-dark"
suppress_warnings = ["misc.highlighting_failure"]  # an ellipsis in an excerpt
