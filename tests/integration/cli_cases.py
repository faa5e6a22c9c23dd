"""What the command line does, as a table: a line to run, what it prints and how it exits.

The lines run in bash, with ``pasta`` on the PATH, in a directory with the inputs of ``cli_sample``. ``out`` and ``err``
are regular expressions searched in standard output and standard error ("^$" is: nothing).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    """``run`` must exit with ``rc``; everything on standard error must match ``err`` when nothing else is said."""

    run: str
    out: str = "^$"
    err: str = "^$"
    rc: int = 0


USAGE = 2
FAILED = 125
PIPE = 141  # 128 + SIGPIPE

HELP = [
    Case("pasta", out="^Usage: pasta"),
    Case("pasta --help", out=r"(?s)^Usage: pasta.*analyze .*doctor "),
    Case("pasta -h", out="^Usage: pasta"),
    Case("pasta --version", out=r"^pasta \d+\.\d+\.\d+\n$"),
    Case("pasta analyze --tool mine.py --help", out=r"^Usage: pasta analyze"),
    Case("pasta analyze --tool ./mine.py --help", out=r"--add <int> +mine: number to add"),
    Case("pasta dump --help", out="SHARD"),
    Case("pasta --help | grep -c dump", out="^0\n$", rc=1),
]

USAGE_ERRORS = [
    Case("pasta anlyze", err=r"^pasta: error: no verb 'anlyze'; did you mean analyze\? .*--help.*\n$", rc=USAGE),
    Case("pasta zzz", err=r"^pasta: error: no verb 'zzz'; pasta --help lists them\n$", rc=USAGE),
    Case("pasta --bogus", err="^pasta: error: No such option: --bogus; see pasta --help\n$", rc=USAGE),
    Case("pasta analyze", err="Missing argument 'TRACE'; see pasta analyze --help", rc=USAGE),
    Case("pasta analyze a.pasta --bogus", err="No such option: --bogus", rc=USAGE),
    Case("pasta analyze a.pasta -t kernels -f xml", err="'xml' is not one of 'table', 'csv'", rc=USAGE),
    Case("pasta analyze a.pasta -t kernels -n many", err="Invalid value for '--limit'", rc=USAGE),
    Case("pasta analyze a.pasta --tool kernls", err=r"no tool 'kernls'; did you mean kernels", rc=USAGE),
    Case("pasta analyze a.pasta --tool ./nothing.py", err=r"no file nothing\.py", rc=USAGE),
    Case("pasta analyze a.pasta --tool ./broken.py", err=r"broken\.py failed: ModuleNotFoundError", rc=USAGE),
    Case("pasta analyze a.pasta -t ./mine.py --ad 1", err=r"No such option: --ad .*--add", rc=USAGE),
    Case("pasta analyze a.pasta -t kernels -s calz", err="cannot sort by 'calz'.*calls", rc=USAGE),
    Case("pasta analyze a.pasta -t kernels -F bogus", err="cannot show 'bogus'", rc=USAGE),
    Case("pasta analyze a.pasta -t kernels -n -1", err="limit of -1 rows is negative", rc=USAGE),
    Case("pasta analyze a.pasta -t kernels --time 5", err="'5' is not a window of time; write it like 5s-9s", rc=USAGE),
    Case("pasta analyze a.pasta -t kernels --time 2s-1s", err="is empty", rc=USAGE),
    Case("pasta analyze a.pasta -t kernels --rank x", err="--rank 'x' is not a list of numbers", rc=USAGE),
    Case("pasta analyze a.pasta -t kernels --kernel '('", err=r"'\(' is not a regular expression", rc=USAGE),
    Case("pasta analyze a.pasta -t kernels --range stepp", err="'stepp'; did you mean step", rc=USAGE),
    Case("pasta analyze a.pasta -t kernels --scheduler x:1", err="add --engine dask", rc=USAGE),
    Case("pasta analyze a.pasta a.pasta -t kernels", err="a.pasta is given twice", rc=USAGE),
    Case("pasta query a.pasta 'SELECT nme FROM kernel'", err="no column 'nme'; did you mean name", rc=USAGE),
    Case("pasta query a.pasta 'SELECT 1 FROM kernls'", err=r"no table 'kernls'; did you mean kernel", rc=USAGE),
    Case("pasta query a.pasta 'DROP TABLE kernel'", err="not a query; begin with SELECT", rc=USAGE),
    Case("pasta query a.pasta ''", err="not a query", rc=USAGE),
    Case("pasta query a.pasta 'SELECT ((('", err="^pasta: error: the query does not work: .*\n$", rc=USAGE),
    Case("pasta query a.pasta 'SELECT 1; SELECT 2'", err="the query does not work", rc=USAGE),
    Case("pasta schema kernl", err="no table `kernl`; did you mean `kernel`", rc=USAGE),
    Case("pasta tools kernls", err="no tool 'kernls'", rc=USAGE),
    Case("pasta export a.pasta -o x --to bogus", err="'bogus' is not one of 'parquet', 'csv', 'perfetto'", rc=USAGE),
    Case("pasta export a.pasta -o x", err="cannot tell which format x is to have; add --to", rc=USAGE),
    Case("pasta export a.pasta -o x --to csv --table krnel", err="did you mean `kernel`", rc=USAGE),
    Case("pasta export a.pasta -o x.pftrace --table kernel", err="--table is for parquet and csv", rc=USAGE),
    Case("pasta export a.pasta -o a.pasta --to perfetto -f", err="a.pasta is the trace itself", rc=USAGE),
    Case("pasta import kineto.json --from kinto", err="no format 'kinto'; use kineto", rc=USAGE),
    Case("pasta env --shell tcl", err="'tcl' is not one of 'bash'", rc=USAGE),
    Case("pasta env --trace krnel", err="--trace=krnel is unknown; did you mean kernel", rc=USAGE),
]

BAD_INPUT = [
    *(
        Case(f"pasta info {trace}", err=rf"^pasta: error: .*{trace}.*; .*\n$", rc=USAGE)
        for trace in ("missing.pasta", "empty.pasta", "text.pasta", "cut.pasta", "flipped.pasta", "newer.pasta")
    ),
    Case("pasta analyze cut.pasta -t kernels", err="^pasta: error: .*cut.pasta.*; .*\n$", rc=USAGE),
    Case("pasta query flipped.pasta 'SELECT name FROM kernel'", err="^pasta: error: .*flipped.pasta", rc=USAGE),
    Case("pasta info emptydir.pasta", err="^pasta: error: .*emptydir.pasta", rc=USAGE),
    Case("pasta info newer.pasta", err="999", rc=USAGE),
    Case("pasta info taken/a.pasta", err="^pasta: error: .*taken/a.pasta", rc=USAGE),
    Case("pasta export flipped.pasta -o x --to csv; ls x", err="(?s)flipped.pasta.*cannot access 'x'", rc=USAGE),
    Case("pasta merge a.pasta cut.pasta -o x; ls x", err="(?s)cut.pasta.*cannot access 'x'", rc=USAGE),
    Case("pasta import text.pasta", err="cannot tell what text.pasta is; name its format", rc=USAGE),
    Case("pasta dump text.pasta", out="text.pasta: 17 bytes, 0 strings"),
    Case("pasta dump missing", err="^pasta: error: .*missing", rc=USAGE),
    Case("pasta info norows.pasta", out="norows.pasta"),
    Case("pasta analyze norows.pasta -t kernels", out="kernels needs kernel, which this trace does not have"),
    Case("pasta query norows.pasta 'SELECT name FROM kernel' -f csv", out="^name\n$"),
]

BAD_OUTPUT = [
    Case("pasta schema -o missing/x.csv", err=r"cannot write missing/x\.csv: No such file", rc=USAGE),
    Case("pasta schema -o taken/x.csv", err=r"cannot write taken/x\.csv: Not a directory", rc=USAGE),
    Case("pasta export a.pasta --to csv -o taken", err="taken exists; .*--force-overwrite", rc=USAGE),
    Case("pasta export a.pasta --to csv -o emptydir.pasta/x/y", err="cannot write emptydir.pasta/x/y", rc=USAGE),
    Case("pasta merge a.pasta b.pasta -o taken", err="taken exists", rc=USAGE),
    Case("pasta import kineto.json -o taken", err="taken exists", rc=USAGE),
    Case("pasta schema > /dev/full", err="No space left on device", rc=USAGE),
    Case("pasta schema >&-"),
    Case("set -o pipefail; pasta schema --all | true", rc=PIPE),
]

WORKS = [
    Case(
        "pasta analyze a.pasta -t kernels -f csv -F kernel,calls,total_ns",
        out="^kernel,calls,total_ns\ngemm,3,60000\ncopy,1,40000\n$",
    ),
    Case("pasta analyze a.pasta -t cuda_gpu_kern_sum -f csv -F calls -n 1", out="^calls\n3\n$"),
    Case(
        "pasta analyze a.pasta -t kernels -f tsv -F kernel,calls -s +calls", out="^kernel\tcalls\ncopy\t1\ngemm\t3\n$"
    ),
    Case("pasta analyze a.pasta -t kernels -f csv -F kernel --kernel '^c'", out="^kernel\ncopy\n$"),
    Case("pasta analyze a.pasta -t kernels -f csv -F calls --time 90us-250us", out="^calls\n2\n$"),
    Case("pasta analyze a.pasta -t kernels -f csv -F calls --range step", out="^calls\n2\n$"),
    Case("pasta analyze a.pasta -t kernels -f csv -F kernel --percent-limit 50", out="^kernel\ngemm\n$"),
    Case("pasta analyze a.pasta -t kernels --rank 7", out="found no kernel rows in rank 7"),
    Case("pasta analyze 'two words.pasta' -t kernels -f csv -F calls -n 1", out="^calls\n3\n$"),
    Case("pasta analyze a.pasta b.pasta -t kernels -f csv -F calls -s -calls -n 1", out="^calls\n6\n$"),
    Case("pasta analyze dir.pasta -t kernels -f csv -F calls -n 1", out="^calls\n3\n$"),
    Case("pasta analyze a.pasta -t ./mine.py --add 10 -f csv", out="^launches\n14\n$"),
    Case("pasta analyze a.pasta -t ./mine.py,kernels -f csv -n 1", out="(?s)^# mine\nlaunches\n4\n\n# kernels\n"),
    Case("pasta analyze a.pasta -t ./mine.py -o x.json && cat x.json", out=r'"rows": \[\s*{"launches": 4}\]'),
    Case("pasta analyze a.pasta -t ./mine.py -o x && cat x", out="^launches\n4\n$"),
    Case(
        "pasta query a.pasta 'SELECT name, sum(end_ns - start_ns) AS ns FROM kernel GROUP BY name ORDER BY ns' -f csv",
        out="^name,ns\ncopy,40000\ngemm,60000\n$",
    ),
    Case("pasta query a.pasta 'SELECT name FROM kernel' -n 1 -f csv", out="^name\ngemm\n$"),
    Case("pasta query a.pasta 'WITH k AS (SELECT * FROM kernel) SELECT count(*) AS n FROM k' -f csv", out="^n\n4\n$"),
    Case("pasta query a.pasta 'SELECT count(*) AS n FROM range' -f json", out=r'"rows": \[\s*{"n": 1}\]'),
    Case("pasta info a.pasta", out=r"(?s)\./solver input.*kernel +4.*memcpy +lost: asleep.*Test Device"),
    Case("pasta info a.pasta", out=r"op +not asked for: recorded with --trace=kernel,api,range"),
    Case("pasta info a.pasta -f json | python -m json.tool > /dev/null"),
    Case("pasta schema", out=r"kernel +\d+ +one kernel launch"),
    Case("pasta schema kernel", out=r"start_ns +int64 +ns +begin"),
    Case("pasta schema kernel -f markdown", out=r"\| *start\\?_ns *\|"),
    Case(
        "pasta schema --all -f json | python -c 'import json,sys; print(len(json.load(sys.stdin)[\"tables\"]))'",
        out="^26\n",
    ),
    Case("pasta tools", out="(?m)^ +kernels +"),
    Case("pasta tools kernels", out="--by"),
    Case("pasta export a.pasta --to csv -o x && ls x", out="(?s)api.csv.*kernel.csv", err="x  12 rows"),
    Case("pasta export a.pasta -o x.pftrace && test -s x.pftrace", err=r"x\.pftrace  9 events"),
    Case(
        "pasta merge a.pasta b.pasta -o x && pasta query x 'SELECT count(*) AS n FROM kernel' -f csv",
        out="^n\n8\n$",
        err="x",
    ),
    Case(
        "pasta import kineto.json -o x && pasta query x 'SELECT name FROM kernel' -f csv",
        out="^name\ngemm\n$",
        err="kineto",
    ),
    Case("pasta import kineto.json && ls kineto.pasta", out="^kineto.pasta\n$", err="next: pasta analyze kineto.pasta"),
    Case("NO_COLOR=1 pasta analyze a.pasta -t kernels", out="^[^\x1b]*$"),
]

DIFF = [
    Case(
        "pasta diff a.pasta b.pasta -t kernels -f csv",
        out=r"(?s)^# kernels\nkernel,base,new,delta,ratio\ngemm,60000,120000,60000,2.0\n"
        r"\n# kernels_only_a\nkernel,value\ncopy,40000\n\n# kernels_only_b\nkernel,value\nfill,40000\n$",
    ),
    Case("pasta diff a.pasta b.pasta -t kernels", out=r"^B - A\nA: a.pasta.*\nB: b.pasta"),
    Case("pasta diff a.pasta b.pasta -t kernels --column calls -f csv -n 1", out="gemm,3,3,0,1.0"),
    # All kernels: 100 µs in A, 160 µs in B. gemm alone: 60 and 120.
    Case("pasta diff a.pasta b.pasta -t kernels --fail-above 59%", out="gemm", err="kernels grew by 60.0 %", rc=1),
    Case("pasta diff a.pasta b.pasta -t kernels --fail-above 61%", out="gemm"),
    Case("pasta diff b.pasta a.pasta -t kernels --fail-above 0%", out="gemm"),
    Case("pasta diff a.pasta b.pasta -t kernels --fail-above 99%:gemm", out="gemm", err="gemm grew by 100.0 %", rc=1),
    Case("pasta diff a.pasta b.pasta -t kernels --fail-above 5", err="'5' is no threshold; write it like", rc=USAGE),
    Case("pasta diff a.pasta b.pasta -t kernels --fail-above 5%:gem", err="no row or table 'gem'; use gemm", rc=USAGE),
    Case("pasta diff a.pasta b.pasta -t kernels -c bogus", err="no table has a number 'bogus'", rc=USAGE),
    Case("pasta diff a.pasta b.pasta -t kernels,api", err="diff compares with one tool", rc=USAGE),
    Case("pasta diff a.pasta b.pasta -m shape", err="'shape' is not one of 'name', 'base', 'op', 'range'", rc=USAGE),
    Case("pasta diff a.pasta", err="Missing argument 'B'", rc=USAGE),
    Case("pasta diff a.pasta missing.pasta", err="missing.pasta", rc=USAGE),
]

CASES = [*HELP, *USAGE_ERRORS, *BAD_INPUT, *BAD_OUTPUT, *WORKS, *DIFF]
