"""Settings of the site. Sphinx reads this file and defines names in it."""

project = "kubelet-devicemanager"
extensions = ["myst_parser", "sphinx.ext.autodoc"]
root_doc = "index"
html_theme = "furo"
html_title = project
html_show_copyright = False
html_copy_source = False
myst_heading_anchors = 4  # the pages' links use the anchors that GitHub generates
myst_enable_extensions = ["colon_fence"]
highlight_language = "none"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_class_signature = "mixed"
# Ignore ambiguous references: type hints have short names, and several packages have a Pod. Unknown
# names are still errors.
suppress_warnings = ["ref.python"]
