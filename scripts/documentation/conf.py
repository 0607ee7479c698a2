"""Settings of Sphinx for the site. Read by `python -m scripts.documentation`, which has assembled the pages before."""

import livegrad

project = "livegrad"
author = "the livegrad authors"
copyright = author
release = livegrad.__version__

extensions = ["myst_parser", "sphinx_copybutton"]
myst_enable_extensions = ["deflist"]
myst_heading_anchors = 3
nitpicky = True
highlight_language = "none"
pygments_style = "friendly"
pygments_dark_style = "monokai"

html_theme = "furo"
html_title = "livegrad"
html_static_path = ["style"]
html_css_files = ["livegrad.css"]
html_show_sourcelink = False
html_show_copyright = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#8a3b12", "color-brand-content": "#8a3b12"},
    "dark_css_variables": {"color-brand-primary": "#f0a070", "color-brand-content": "#f0a070"},
    "top_of_page_buttons": [],
}
copybutton_prompt_text = r">>> |\.\.\. "
copybutton_prompt_is_regexp = True
