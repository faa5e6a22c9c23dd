"""Getting into the target: its environment, the injected library, vendor runtimes, Python-side hooks."""
