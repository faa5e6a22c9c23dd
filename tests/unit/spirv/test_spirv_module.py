"""Reading and writing modules: byte-identical when nothing changes, sizes of types, classes of blocks."""

from __future__ import annotations

import subprocess

import pytest
from spirv_harness import compile_source, native, spirv_tool, validate

pytestmark = pytest.mark.usefixtures("compiler")

SOURCES = {
    "empty": "",
    "one kernel": "kernel void k(global int *p) { p[0] = 1; }",
    "control flow": """
        kernel void k(global int *p, long n) {
          switch (n) { case 1L << 40: p[0] = 1; break; case 2: p[1] = 2; }
          for (int i = 0; i < n; ++i) { if (p[i] == 3) continue; p[i]++; }
        }""",
    "types": """
        typedef struct { char a; double b; short3 c; } S;
        constant int table[5] = {1, 2, 3, 4, 5};
        kernel void k(global S *s, image2d_t i, sampler_t m, global float4 *v) { s->b = table[s->a]; v[0].x = s->c.y; }
        kernel void l(local half *h, global half8 *g) { vstore_half8(convert_float8(g[0]), 0, h); }""",
}


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES.keys())
@pytest.mark.parametrize("options", ["-cl-std=CL1.2", "-cl-std=CL3.0 -cl-opt-disable", "-cl-std=CL2.0 -g"])
def test_round_trip_is_byte_identical(source: str, options: str) -> None:
    module = compile_source(source, options)
    assert native().round_trip(module) == module


def assemble(text: str) -> bytes:
    tool = spirv_tool("spirv-as")
    if tool is None:
        pytest.skip("needs spirv-as")
    return subprocess.run([tool, "--preserve-numeric-ids", "-o", "-", "-"], input=text.encode(), capture_output=True,
                          check=True).stdout


HEAD = """
OpCapability Addresses
OpCapability Kernel
OpCapability Int8
OpCapability Int16
OpCapability Int64
OpCapability Float16
OpCapability Float64
OpCapability Vector16
OpMemoryModel Physical64 OpenCL
"""


def test_sizes_follow_the_opencl_layout() -> None:
    module = assemble(HEAD + """
        OpDecorate %15 CPacked
        %1 = OpTypeInt 8 0
        %2 = OpTypeInt 16 0
        %3 = OpTypeInt 32 0
        %4 = OpTypeInt 64 0
        %5 = OpTypeFloat 16
        %6 = OpTypeFloat 64
        %7 = OpTypeVector %3 3
        %8 = OpTypeVector %6 16
        %9 = OpConstant %3 5
        %10 = OpTypeArray %7 %9
        %11 = OpTypePointer CrossWorkgroup %3
        %12 = OpTypeStruct %1 %6 %2
        %13 = OpTypeStruct %1 %12 %11 %1
        %14 = OpTypeStruct
        %15 = OpTypeStruct %1 %6 %2
    """)
    assert native().size_of_types(module) == {
        1: 1, 2: 2, 3: 4, 4: 8, 5: 2, 6: 8,
        7: 16,  # a vector of 3 takes the room of 4
        8: 128,
        10: 5 * 16,
        11: 8,
        12: 24,  # char, 7 bytes of padding, double, short, 6 bytes of padding
        13: 48,  # char, padding to 8, 24, pointer, char, padding
        14: 0,
        15: 11,
    }  # fmt: skip


def test_a_deep_nest_of_structs_is_measured_in_no_time() -> None:
    # Each level holds the one before twice: 2^50 members, without a type of unreasonable depth.
    levels = "\n".join(f"%{k + 1} = OpTypeStruct %{k} %{k}" for k in range(1, 51))
    sizes = native().size_of_types(assemble(HEAD + "%1 = OpTypeInt 8 0\n" + levels))
    assert sizes[11] == 2**10
    assert sizes[51] is None  # beyond any memory


def classes_of(body: str) -> dict[str, int]:
    """Classes of the blocks of a function over the labels %10, %11, ..."""
    module = assemble(HEAD + f"""
        %1 = OpTypeVoid
        %2 = OpTypeFunction %1
        %3 = OpTypeBool
        %4 = OpUndef %3
        %5 = OpTypeInt 32 0
        %6 = OpUndef %5
        %7 = OpFunction %1 None %2
        {body}
        OpFunctionEnd
    """)
    return dict(native().count_classes(module)[0])


def test_both_ends_of_a_conditional_are_executed_equally_often() -> None:
    classes = classes_of("""
        %10 = OpLabel
        OpBranchConditional %4 %11 %12
        %11 = OpLabel
        OpBranch %13
        %12 = OpLabel
        OpBranch %13
        %13 = OpLabel
        OpReturn""")
    assert classes[10] == classes[13] == 0
    assert len({classes[10], classes[11], classes[12]}) == 3


def test_a_loop_body_is_not_executed_as_often_as_what_surrounds_it() -> None:
    classes = classes_of("""
        %10 = OpLabel
        OpBranch %11
        %11 = OpLabel
        OpBranchConditional %4 %12 %14
        %12 = OpLabel
        OpBranch %13
        %13 = OpLabel
        OpBranch %11
        %14 = OpLabel
        OpReturn""")
    assert classes[10] == classes[14] == 0
    assert classes[12] == classes[13]
    assert len({classes[10], classes[11], classes[12]}) == 3  # the head runs once more than the body


def test_an_early_return_splits_the_rest_of_the_function() -> None:
    classes = classes_of("""
        %10 = OpLabel
        OpBranchConditional %4 %11 %12
        %11 = OpLabel
        OpReturn
        %12 = OpLabel
        OpReturn""")
    assert len(set(classes.values())) == 3


def test_a_loop_that_never_ends_and_an_unreachable_block_do_no_harm() -> None:
    classes = classes_of("""
        %10 = OpLabel
        OpSwitch %6 %11 1 %12 2 %13
        %11 = OpLabel
        OpUnreachable
        %12 = OpLabel
        OpBranch %12
        %13 = OpLabel
        OpReturn
        %14 = OpLabel
        OpBranch %13""")
    assert classes[12] not in (classes[10], classes[13])


MODULES = ["-cl-std=CL1.2", "-cl-std=CL3.0", "-cl-std=CL3.0 -cl-opt-disable", "-cl-std=CL3.0 -g"]


@pytest.mark.parametrize("options", MODULES)
@pytest.mark.parametrize("trace", [False, True])
def test_instrumented_modules_are_valid(options: str, trace: bool) -> None:
    for source in SOURCES.values():
        words, plans, skipped, error = native().instrument(compile_source(source, options), trace=trace, extents=trace)
        assert not error
        assert not skipped
        assert len(plans) == source.count("kernel void")
        validate(words)


def test_only_wanted_kernels_are_instrumented() -> None:
    module = compile_source(SOURCES["types"])
    words, plans, skipped, _ = native().instrument(module, wants=lambda name: name == "l")
    assert [plan.name for plan in plans] == ["l"]
    assert not skipped
    validate(words)
    untouched, plans, _, _ = native().instrument(module, wants=lambda name: False)
    assert plans == []
    assert len(native().instrument(untouched)[1]) == 2


def test_extra_arguments_follow_those_of_the_program() -> None:
    module = compile_source("kernel void k(global int *p, int a, float3 b, image2d_t i, sampler_t s) { p[0] = a; }")
    (plan,) = native().instrument(module)[1]
    assert (plan.argument_count, plan.buffer_argument, plan.launch_argument) == (5, 5, 6)
