"""How Sphinx builds these pages: MyST Markdown, furo, every warning an error."""

from coopgroup import __version__

project = "coopgroup"
author = "the coopgroup developers"
project_copyright = "the coopgroup developers"
version = release = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.doctest",
    "sphinx.ext.napoleon",
]
html_theme = "furo"
html_title = f"coopgroup {release}"
html_show_sourcelink = False

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
napoleon_use_ivar = True  # autodoc documents the fields; their text belongs to the class
# Building needs no network, so names of other projects have no page to link to. References that
# spell a name of coopgroup out in full are checked.
nitpick_ignore_regex = [(r"py:.*", r"(?!coopgroup\.).*")]
# A token without public parts, Protocols that the text of the arguments describes, a private enum
# of a field with a default, type variables, listeners of one member, and a leader's memory of
# claims, which is for no policy to read. A group gives its transport to a catalogue.
nitpick_ignore = [
    ("py:class", "coopgroup.kafka.callbacks.pending_revocations.PutOff"),
    ("py:class", "coopgroup.health.HasHealth"),
    ("py:class", "coopgroup.health.Metrics"),
    ("py:class", "coopgroup.metrics.feed.MemberListener"),
    ("py:class", "coopgroup.metrics.feed.Probe"),
    ("py:class", "coopgroup.metrics.handlers._Handler"),
    ("py:class", "coopgroup.metrics.names.Merge"),
    ("py:class", "coopgroup.metrics.spans.MemberSpans"),
    ("py:class", "coopgroup.core.model.named_factories.T"),
    ("py:class", "coopgroup.core.policies.memory.Given"),
    ("py:class", "coopgroup.kafka.rpc.transport.GroupTransport"),
]
