"""``python -m pasta`` is ``pasta``."""

from pasta.cli.main import main

main()
