"""Overhead of the OpenCL timeline on every OpenCL device here, interleaved with native in one run.

    python scripts/bench/opencl_overhead.py [--rounds 5] [--repeat 5] [-o results/opencl_overhead.json]

``added_us`` is the median's distance from native's, in microseconds a launch. Without OCL_ICD_VENDORS the program sees
the runtime of pasta[cpu] and what pyopencl bundles (PoCL with pasta[cpu-lite]).
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

from harness import PASTA, ROOT, Variant, cpu_name, report, run_interleaved, to_rows

HERE = Path(__file__).parent


def main() -> None:
    """Run everything and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="processes of each variant")
    parser.add_argument("--repeat", type=int, default=5, help="measurements a process")
    parser.add_argument("-o", "--output", type=Path, default=HERE / "results" / "opencl_overhead.json")
    options = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    from pasta.inject.icd import cpu_device_variables

    icd, _ = cpu_device_variables([sys.executable], os.environ, wanted="OCL_ICD_VENDORS" not in os.environ)
    with tempfile.TemporaryDirectory() as folder:

        def pasta(name: str, *extra: str) -> Variant:
            return Variant(name, [*PASTA, "record", "-q", "-f", "-o", f"{folder}/{name}.pasta", *extra, "--"], icd)

        variants = [Variant("native", environment=icd), pasta("pasta"), pasta("pasta-kernel", "-t", "kernel")]
        command = [sys.executable, str(HERE / "opencl_launches.py"), "--repeat", str(options.repeat)]
        rows = to_rows(run_interleaved(command, variants, options.rounds))
    native = {row["workload"]: float(str(row["median"])) for row in rows if row["variant"] == "native"}
    for row in rows:
        row["added_us"] = round(float(str(row["median"])) - native[row["workload"]], 3)
    report(rows, cpu_name(), options.output)


if __name__ == "__main__":
    main()
