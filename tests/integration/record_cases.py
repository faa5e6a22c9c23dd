"""What `pasta record` does, as a table in the style of cli_cases: a line to run, what it prints and how it exits.

The lines run in bash in an empty directory, with ``pasta`` and ``python`` on the PATH. ``mark`` is a program that makes
one event, whatever devices are here.
"""

from __future__ import annotations

from cli_cases import Case

QUIET = "pasta record -q -o t.pasta"

EXITS = [
    Case(f"{QUIET} -- true", rc=0),
    Case(f"{QUIET} -- sh -c 'exit 7'", rc=7),
    Case(f"{QUIET} sh -c 'exit 7'", rc=7),
    Case(f"{QUIET} -- mark 3", rc=3),
    Case(f"{QUIET} -- python -c 'import os; os._exit(9)'", rc=9),
    Case(f"{QUIET} -- sh -c 'kill -TERM $$'; echo $?", out="^143\n$", err="Terminated|^$"),
    Case(f"{QUIET} -- sh -c 'kill -KILL $$'; echo $?", out="^137\n$", err="Killed|^$"),
    Case(f"{QUIET} -- sh -c 'kill -SEGV $$'; echo $?", out="^139\n$", err="Segmentation|^$"),
    Case(f"{QUIET} -- nosuchprogram", err="^pasta: error: nosuchprogram: command not found", rc=127),
    Case(f"{QUIET} -- ./nosuchprogram", err="command not found", rc=127),
    Case(f"touch plain; {QUIET} -- ./plain", err="Permission denied; make it executable", rc=126),
    Case(f"echo text > plain; chmod +x plain; {QUIET} -- ./plain", err="Exec format error", rc=126),
    Case("pasta record", err="Missing argument 'COMMAND", rc=2),
    Case("pasta record --bogus true", err="No such option: --bogus", rc=2),
    # What stands behind the command belongs to it.
    Case(f"{QUIET} sh -c 'echo $0 $1' --bogus --help", out="^--bogus --help\n$"),
]

OUTPUT = [
    # Not one byte of ours on the program's standard output; its input and its bytes are its own.
    Case(
        "pasta record -o t.pasta -- echo hi",
        out="^hi\n$",
        err=r"(?s).*pasta: t\.pasta .*\npasta: next: pasta analyze t\.pasta\n$",
    ),
    Case(rf"{QUIET} -- printf '\377\000\n' | od -An -tx1", out="^ ff 00 0a\n$"),
    Case(f"echo in | {QUIET} -- cat", out="^in\n$"),
    Case(f"{QUIET} -- sh -c 'echo e >&2'", err="^e\n$"),
    Case(f"yes | head -c 3000000 | {QUIET} -- cat | wc -c", out="^3000000\n$"),
    Case(f"{QUIET} -- yes | head -1", out="^y\n$"),  # SIGPIPE ends the program, as without pasta
]

NAMES = [
    Case("pasta record -q -- mark; ls", out=r"^mark-\d+\.pasta\n$"),
    Case("pasta record -q -- python -c 'pass' ; ls", out=r"^python-\d+\.pasta\n$"),
    Case("pasta record -q -o x -- mark; ls", out=r"^x\.pasta\n$"),
    Case("WHO=me pasta record -q -o 'a-%q{WHO}-%q{NOBODY}-%%.pasta' -- mark; ls", out=r"^a-me--%\.pasta\n$"),
    Case("pasta record -q -o 'a-%p.pasta' -- mark; ls", out=r"^a-\d+\.pasta\n$"),
    Case("RANK=3 LOCAL_RANK=1 pasta record -q -o 'a-%r-%l.pasta' -- mark; ls", out=r"^a-3-1\.pasta\n$"),
    Case("MY=5 pasta record -q --rank-env MY -o 'a-%r.pasta' -- mark; ls", out=r"^a-5\.pasta\n$"),
    Case(
        "pasta record -q -o 'a-%n.pasta' -- mark; pasta record -q -o 'a-%n.pasta' -- mark; ls",
        out="^a-1.pasta\na-2.pasta\n$",
    ),
    Case("pasta record -q -o 'a-%p.pasta' -- sh -c 'mark; mark'; ls | wc -l", out="^2\n$"),
    Case("pasta record -q --dir -o d -- mark; ls d.pasta", out=r"(?s)manifest\.json.*process"),
    Case("pasta record -e A=1 -e B=2 -q -o t -- sh -c 'echo $A$B'", out="^12\n$"),
    Case("pasta record -e A -q -o t -- true", err="--env A is not an assignment; write NAME=VALUE", rc=2),
]

OVERWRITING = [
    Case(f"{QUIET} -- true; {QUIET} -- echo ran", err="t.pasta already exists; pass --force-overwrite", rc=125),
    Case(f"{QUIET} -- true; {QUIET} -f -- echo ran", out="^ran\n$"),
    Case(f"mkdir t.pasta; touch t.pasta/mine; {QUIET} -f -- echo ran; ls t.pasta", out="^mine\n$", err="not a trace"),
    # A command that cannot run costs the old trace nothing.
    Case(f"{QUIET} -- true; {QUIET} -f -- nosuchprogram; pasta info t.pasta | head -1", out="^true", err="not found"),
    Case("pasta record -q -o missing/t.pasta -- echo ran", err="cannot create .*missing/t.pasta", rc=125),
    Case("pasta record -q -o 'a-%p.pasta' -- mark; for f in a-*; do pasta info $f | head -1; done", out="^mark"),
]

OPTIONS = [
    Case("pasta record --trace=help", out="(?s)kernel .*Aliases:.*torch"),
    Case("pasta record -t krnel true", err="--trace=krnel is unknown; did you mean kernel\\?", rc=2),
    Case("pasta record -k '(' true", err="--kernels is not a regular expression", rc=2),
    Case("pasta record --max-size 5T true", err="it takes a size such as 2G", rc=2),
    Case("pasta record --ranks x true", err="it takes a list such as 0,3-5", rc=2),
    Case("pasta record -p step true", err="add --capture-range=range", rc=2),
    Case("pasta record -c nvtx true", err="it takes none, range or cudaProfilerApi", rc=2),
    Case("pasta record --memory=everything true", err="--memory=everything is unknown", rc=2),
    Case("pasta record --sample 3 true", err="add --memory", rc=2),
    Case(f"{QUIET} --memory=sites -- sh -c 'echo $PASTA_MEMORY'", out="^sites\n$"),
    Case(f"{QUIET} --memory -- sh -c 'echo $PASTA_MEMORY'", out="^objects,sites,lines\n$"),
    Case(f"{QUIET} sh -c 'echo $0:$PASTA_MEMORY' --memory", out="^--memory:\n$"),
    Case(
        "pasta record -q -o t -t range -- mark; pasta query t.pasta 'select count(*) as n from range' -f csv",
        out="^n\n1\n$",
    ),
    Case(
        "pasta record -q -o t -t kernel -- mark; pasta query t.pasta 'select count(*) as n from range' -f csv",
        out="^n\n0\n$",
    ),
    Case("pasta record -o t -c range -p never -- mark 2>&1 | grep -c 'with losses'", out="^1\n$"),
    # Command line over environment over file over default.
    Case(
        "printf '[record]\\noutput = \"f\"\\n' > c.toml; pasta record -q --config c.toml -- mark; ls *.pasta",
        out="^f.pasta\n$",
    ),
    Case(
        "printf '[record]\\noutput = \"f\"\\n' > c.toml; PASTA_OUTPUT=e pasta record -q --config c.toml -- mark; ls",
        out="^c.toml\ne.pasta\n$",
    ),
    Case("PASTA_OUTPUT=e pasta record -q -o o -- mark; ls", out="^o.pasta\n$"),
    Case(
        "printf '[record]\\nbogus = 1\\n' > c.toml; pasta record --config c.toml -- true",
        err="record has no option bogus",
        rc=2,
    ),
    Case("printf '[record' > c.toml; pasta record --config c.toml -- true", err="c.toml is not TOML", rc=2),
    Case("pasta record --config none.toml -- true", err="cannot read none.toml", rc=2),
]

PROCESSES = [
    # A tree of processes is one trace; those that made no event left nothing.
    Case(
        f"{QUIET} -- sh -c 'mark; mark; true'; pasta query t.pasta 'select count(*) as n from range' -f csv",
        out="^n\n2\n$",
    ),
    Case(f"{QUIET} -- sh -c 'exec mark 4'", rc=4),
    # A daemon goes on writing into a directory that is a trace all the while.
    Case(
        "pasta record -o t -- python -c 'import daemon_for_test'; pasta info t.pasta|head -1; echo>fifo; cat done",
        out=r"(?s)^python.*finished\n$",
        err="still run",
    ),
]

CASES = EXITS + OUTPUT + NAMES + OVERWRITING + OPTIONS + PROCESSES
