"""The tools that come with pasta: one module each, named as the tool."""
