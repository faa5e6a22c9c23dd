"""Start-up of the command line beside bare Python, interleaved: `pasta --help`, and what record adds to `true`.

    python scripts/bench/startup.py [--rounds 20] [-o results/startup.json]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from harness import PASTA, Samples, Variant, cpu_name, environment, report, to_rows

HERE = Path(__file__).parent


def main() -> None:
    """Run everything and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("-o", "--output", type=Path, default=HERE / "results" / "startup.json")
    options = parser.parse_args()
    samples: dict[tuple[str, str], Samples] = {}
    with tempfile.TemporaryDirectory() as folder:
        commands = {
            "native": [sys.executable, "-c", "pass"],
            "pasta --help": [*PASTA, "--help"],
            "pasta record --help": [*PASTA, "record", "--help"],
            "pasta record true": [*PASTA, "record", "-q", "-f", "-o", f"{folder}/t.pasta", "--", "true"],
        }
        for _ in range(options.rounds):
            for name, command in commands.items():
                began = time.perf_counter()
                subprocess.run(command, env=environment(Variant(name)), stdout=subprocess.DEVNULL, check=True)
                entry = samples.setdefault(("startup", name), Samples("ms"))
                entry.values.append((time.perf_counter() - began) * 1e3)
    report(to_rows(samples), cpu_name(), options.output)


if __name__ == "__main__":
    main()
