"""pasta doctor: is this machine ready, and the fix for each line that is not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pasta.cli.checks import Check, all_checks
from pasta.cli.options import Format, FormatOption, OutputOption
from pasta.cli.output import open_output, write_results
from pasta.cli.progress import progress

if TYPE_CHECKING:
    from pasta.tools.result import Result


def command(format: FormatOption = None, output: OutputOption = None) -> int:
    """Check this machine, and say how to fix what is not ready.

    Exits with 1 when something does not work. Each OpenCL driver is loaded in a process of its own, and PyTorch is
    recorded for a moment, to see whether that works.
    """
    with progress("checking this machine"):
        checks = list(all_checks())
    if format in (None, Format.TABLE):
        with open_output(output) as out:
            out.writelines(f"{line}\n" for check in checks for line in _lines(check))
    else:
        write_results(_result(checks), format, output)
    return 1 if any(check.status == "fail" for check in checks) else 0


def _lines(check: Check) -> list[str]:
    lines = [f"{check.status:<4}  {check.name:<16}{check.found}"]
    return [*lines, f"{'':<22}fix: {check.fix}"] if check.fix else lines


def _result(checks: list[Check]) -> Result:
    import polars as pl

    from pasta.tools.result import Result, ResultColumn, ResultTable

    rows = [(check.status, check.name, check.found, check.fix) for check in checks]
    names = ("status", "check", "found", "fix")
    frame = pl.DataFrame(rows, schema=dict.fromkeys(names, pl.String), orient="row")
    columns = tuple(ResultColumn(name, key=name == "check") for name in names)
    return Result("doctor", [ResultTable("doctor", frame, columns, title="This machine")])
