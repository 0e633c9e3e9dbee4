"""Sphinx's settings for the site. Read by Sphinx, which wants this name and these names."""

project = "kubelet-devicemanager"
extensions = ["myst_parser", "sphinx.ext.autodoc"]
root_doc = "index"
html_theme = "furo"
html_title = project
html_show_copyright = False
html_copy_source = False
myst_heading_anchors = 4  # as code forges make them, which the pages' links are written for
myst_enable_extensions = ["colon_fence"]
highlight_language = "none"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_class_signature = "mixed"
