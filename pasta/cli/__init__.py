"""The command line: one module a verb, which parses, calls and prints.

A verb's module is imported only when that verb runs, and imports what is slow (numpy, polars, rich) inside its
functions. It offers

* ``command``: the function whose signature is the verb's command line and whose docstring is its help;
  it returns the exit status, or None for 0;
* ``build(arguments)`` instead of ``command`` where the options depend on the arguments (``--tool``);
* ``SETTINGS``, optional: keywords for ``typer.Typer.command``.
"""
