"""Random OpenCL kernels that end, stay in bounds, and give the same result on every run.

Control flow depends only on ids and on read-only buffers, work-items write to places of their own, and every loaded
value is used, so that no compiler has a reason to leave a load out.
"""

from __future__ import annotations

import random

INPUT = 256  # ints in each of two read-only buffers
OWN = 8  # ints of each work-item in each of two output buffers
GROUP = 16  # work-items of a group

HEADER = f"""
typedef struct {{ int first; int rest[3]; }} Quad;
int probe(global const int *p, int at, int turns) {{
  int sum = 0;
  for (int t = 0; t < (turns & 3); ++t) sum += p[(at + t) & {INPUT - 1}];
  return sum;
}}
int peek(local const int *p, int at) {{ return p[at & {GROUP - 1}] * 3; }}
"""


class Generator:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.loops = 0

    def kernel(self) -> str:
        """Source of a kernel `go(in0, in1, out0, out1, sums, scratch, n)`."""
        lines = [
            HEADER,
            "kernel void go(global const int *in0, global const int *in1, global int *out0, global int *out1,",
            "               global int *sums, local int *scratch, int n) {",
            "  int i = get_global_id(0), l = get_local_id(0);",
            "  int a = i, b = n - i, c = l * 7;",
        ]
        for _ in range(self.random.randint(1, 3)):
            lines += self.block(1, self.random.randint(2, 4))
            if self.random.random() < 0.6:
                lines += self.exchange()
        if self.random.random() < 0.5:
            lines += [f"  if ({self.condition()}) {{ out1[i * {OWN}] = a; return; }}"]
        lines += self.block(1, 2)
        lines += [f"  out0[i * {OWN} + 7] = a ^ b ^ c;", "}"]
        return "\n".join(lines)

    def exchange(self) -> list[str]:
        shift = self.random.randint(1, GROUP - 1)
        barrier = "  barrier(CLK_LOCAL_MEM_FENCE);"
        return ["  scratch[l] = a + b;", barrier, f"  c += peek(scratch, l + {shift}) + scratch[{shift}];", barrier]

    def block(self, depth: int, statements: int) -> list[str]:
        lines: list[str] = []
        for _ in range(statements):
            lines += ["  " * depth + line for line in self.statement(depth)]
        return lines

    def statement(self, depth: int) -> list[str]:
        kinds = [self.update, self.update, self.store, self.atomic, self.vector, self.structure, self.chosen, self.call]
        if depth < 4:
            kinds += [self.branch, self.loop, self.breaking_loop, self.switch]
        made = self.random.choice(kinds)
        if made in (self.branch, self.loop, self.breaking_loop, self.switch):
            return made(depth)  # type: ignore[call-arg]
        return made()  # type: ignore[call-arg]

    def variable(self) -> str:
        return self.random.choice("abc")

    def value(self) -> str:
        return self.random.choice(["a", "b", "c", "i", "l", str(self.random.randint(1, 99))])

    def loaded(self) -> str:
        source = self.random.choice(["in0", "in1"])
        operator = self.random.choice("+-*^")
        return f"{source}[({self.value()} {operator} {self.value()}) & {INPUT - 1}]"

    def condition(self) -> str:
        simple = f"({self.value()} & {self.random.choice([1, 2, 3, 7])}) {self.random.choice(['==', '>', '!='])} 1"
        if self.random.random() < 0.3:
            return f"{simple} {self.random.choice(['&&', '||'])} {self.loaded()} > 100"
        return simple

    def update(self) -> list[str]:
        return [f"{self.variable()} += {self.loaded()} {self.random.choice('+-^')} {self.value()};"]

    def store(self) -> list[str]:
        target = self.random.choice(["out0", "out1"])
        place = f"{target}[i * {OWN} + ({self.value()} & {OWN - 1})]"
        return [f"{place} {self.random.choice(['=', '+=', '^='])} {self.value()};"]

    def atomic(self) -> list[str]:
        return [f"atomic_add(&sums[{self.value()} & 7], {self.value()});"]

    def vector(self) -> list[str]:
        width = self.random.choice([2, 3, 4])
        source = self.random.choice(["in0", "in1"])
        name = f"v{self.random.randint(0, 1 << 30)}"
        lines = [f"int{width} {name} = vload{width}({self.value()} & 31, {source} + ({self.value()} & 15));"]
        lines += [f"{self.variable()} += {name}.x ^ {name}.y;"]
        if self.random.random() < 0.5:
            lines += [f"vstore{width}({name}, 1, out1 + i * {OWN});"]
        return ["{ " + " ".join(lines) + " }"]

    def structure(self) -> list[str]:
        member = self.random.choice(["first", "rest[1]", f"rest[({self.value()} & 1) + 1]"])
        return [f"{self.variable()} += ((global const Quad *)in0)[{self.value()} & 31].{member};"]

    def chosen(self) -> list[str]:
        name = f"p{self.random.randint(0, 1 << 30)}"
        choice = f"global const int *{name} = ({self.condition()}) ? in0 : in1;"
        return [f"{{ {choice} {self.variable()} ^= {name}[{self.value()} & {INPUT - 1}]; }}"]

    def call(self) -> list[str]:
        source = self.random.choice(["in0", "in1"])
        return [f"{self.variable()} += probe({source}, {self.value()}, {self.value()});"]

    def branch(self, depth: int) -> list[str]:
        lines = [f"if ({self.condition()}) {{", *self.block(depth, self.random.randint(1, 2))]
        if self.random.random() < 0.5:
            lines += ["} else {", *self.block(depth, self.random.randint(1, 2))]
        return [*lines, "}"]

    def loop(self, depth: int) -> list[str]:
        self.loops += 1
        index, turns = f"k{self.loops}", self.random.choice([f"({self.value()} & 3)", "2", "3"])
        skip = [f"  if ({index} == 1) continue;"] if self.random.random() < 0.3 else []
        head = f"for (int {index} = 0, e{index} = {turns}; {index} < e{index}; ++{index}) {{"
        return [head, *skip, *self.block(depth, self.random.randint(1, 2)), "}"]

    def breaking_loop(self, depth: int) -> list[str]:
        self.loops += 1
        index = f"k{self.loops}"
        head = f"int {index} = 0; do {{ if ({self.condition()}) break;"
        return ["{", head, *self.block(depth, 1), f"}} while (++{index} < 4);", "}"]

    def switch(self, depth: int) -> list[str]:
        lines = [f"switch ({self.value()} & 3) {{"]
        for case in range(self.random.randint(1, 3)):
            ending = self.random.choice(["break;", "break;", "/* falls through */"])
            lines += [f"case {case}: {{", *self.block(depth, 1), f"}} {ending}"]
        return [*lines, "default: ;", "}"]
