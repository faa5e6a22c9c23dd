"""Every way to come by a kernel: opencl_memory_programs.py PLATFORM CASE

Each case prints a JSON object of what it saw, which must be the same with and without ``--memory``.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyopencl as cl
from opencl_memory_cases import SOURCE, Device, N

warnings.simplefilter("ignore")

HEADER = "void store_twice(global int *to, int value);\n"
CALLER = """\
#include "parts/twice.h"
kernel void add(global int *a) {
  int i = get_global_id(0);
  store_twice(a + i, a[i] + i);
}
"""
CALLEE = """\
void store_twice(global int *to, int value) {
  *to = 2 * value;
}
"""

#: A kernel of its own, and two that share a variable.
VARIABLES = """\
global int launches;
kernel void count(global int *a) {
  if (get_global_id(0) == 0) ++launches;
}
kernel void tell(global int *a) {
  a[get_global_id(0)] += launches;
}
kernel void increment(global int *a) {
  a[get_global_id(0)] += 1;
}
"""

#: kernel void add(global int *a) { a[get_global_id(0)] += C; } with a specialization constant C, 1 by default.
SPECIALIZED = """\
OpCapability Addresses
OpCapability Kernel
OpCapability Int64
OpMemoryModel Physical64 OpenCL
OpEntryPoint Kernel %add "add" %id
OpDecorate %id BuiltIn GlobalInvocationId
OpDecorate %c SpecId 7
%void = OpTypeVoid
%int = OpTypeInt 32 0
%long = OpTypeInt 64 0
%c = OpSpecConstant %int 1
%long3 = OpTypeVector %long 3
%input = OpTypePointer Input %long3
%global = OpTypePointer CrossWorkgroup %int
%type = OpTypeFunction %void %global
%id = OpVariable %input Input
%add = OpFunction %void None %type
%a = OpFunctionParameter %global
%begin = OpLabel
%ids = OpLoad %long3 %id Aligned 32
%i = OpCompositeExtract %long %ids 0
%at = OpInBoundsPtrAccessChain %global %a %i
%old = OpLoad %int %at Aligned 4
%new = OpIAdd %int %old %c
OpStore %at %new Aligned 4
OpReturn
OpFunctionEnd
"""


def spirv() -> bytes:
    """Return SPECIALIZED as SPIR-V; exits with status 77 without an assembler."""
    tool = shutil.which("spirv-as", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if tool is None:
        sys.exit(77)
    command = [tool, "--target-env", "spv1.0", "-o", "-", "-"]
    return subprocess.run(command, input=SPECIALIZED.encode(), stdout=subprocess.PIPE, check=True).stdout


def launch(device: Device, kernel: cl.Kernel, items: int = N) -> Any:
    a = device.buffer(np.arange(N, dtype=np.int32))
    kernel(device.queue, (items,), None, a)
    return device.digest(a)


def compiled(device: Device, source: str, options: str = "", headers: Any = ()) -> cl.Program:
    program = cl.Program(device.context, source)
    program.compile(options, headers=list(headers))
    return program


def header(device: Device) -> tuple[str, cl.Program]:
    return "parts/twice.h", cl.Program(device.context, HEADER)


def linked(device: Device) -> Any:
    """The programs are gone when the kernel is made."""
    whole = cl.link_program(
        device.context, [compiled(device, CALLER, headers=[header(device)]), compiled(device, CALLEE)]
    )
    return launch(device, cl.Kernel(whole, "add"))


def library(device: Device) -> Any:
    part = cl.link_program(device.context, [compiled(device, CALLEE)], "-create-library")
    whole = cl.link_program(device.context, [compiled(device, CALLER, headers=[header(device)]), part])
    return launch(device, cl.Kernel(whole, "add"))


def linked_options(device: Device) -> Any:
    parts = [compiled(device, CALLER, "-cl-fast-relaxed-math", [header(device)]), compiled(device, CALLEE)]
    return launch(device, cl.Kernel(cl.link_program(device.context, parts), "add"))


def linked_binary(device: Device) -> Any:
    callee = compiled(device, CALLEE)
    loaded = cl.Program(device.context, device.context.devices, callee.get_info(cl.program_info.BINARIES))
    whole = cl.link_program(device.context, [compiled(device, CALLER, headers=[header(device)]), loaded])
    return launch(device, cl.Kernel(whole, "add"))


def variables(device: Device) -> Any:
    program = cl.Program(device.context, VARIABLES).build("-cl-std=CL3.0")
    count, tell, increment = (cl.Kernel(program, name) for name in ("count", "tell", "increment"))
    return [launch(device, kernel) for kernel in (count, count, tell, increment, count, tell)]


def il(device: Device) -> Any:
    return launch(device, cl.Kernel(cl.Program(device.context, spirv()).build(), "add"))


def constants(device: Device) -> Any:
    program = cl.Program(device.context, spirv())
    program._get_prg().set_specialization_constant(7, np.int32(5))
    return launch(device, cl.Kernel(program.build(), "add"))


def sub_devices(device: Device) -> Any:
    """Two devices in one context, with a queue each; half of a buffer is theirs each, then the other half."""
    (whole,) = device.context.devices
    parts = whole.create_sub_devices([cl.device_partition_property.EQUALLY, max(whole.max_compute_units // 2, 1)])[:2]
    device.context = cl.Context(parts)
    queues = [cl.CommandQueue(device.context, part) for part in parts]
    kernel = device.kernel("increment")
    a = device.buffer(np.arange(N, dtype=np.int32))
    halves = [a.get_sub_region(i * N * 2, N * 2) for i in range(2)]
    for turn in range(2):
        for number, queue in enumerate(queues):
            kernel(queue, (N // 2,), None, halves[(number + turn) % len(queues)])
        for queue in queues:
            queue.finish()
    out = np.empty(N, np.int32)
    cl.enqueue_copy(queues[0], out, a)
    return [len(parts), hashlib.sha256(out.tobytes()).hexdigest()]


def all_kernels(device: Device) -> Any:
    """Made by one call, and each is launched that can be with one buffer."""
    kernels = cl.Program(device.context, SOURCE).build().all_kernels()
    alone = [kernel for kernel in kernels if kernel.num_args == 1]
    return [[kernel.function_name for kernel in kernels], [launch(device, kernel) for kernel in alone]]


def information(device: Device) -> Any:
    """What a kernel says of itself after it was launched, and its copy before that."""
    program = cl.Program(device.context, SOURCE).build("-cl-kernel-arg-info")
    kernel = cl.Kernel(program, "increment")
    seen: list[Any] = [launch(device, kernel)]
    (on,) = device.context.devices
    for one in (kernel, kernel.clone()):
        seen += [one.get_arg_info(0, getattr(cl.kernel_arg_info, what)) for what in (
            "NAME", "TYPE_NAME", "ADDRESS_QUALIFIER", "ACCESS_QUALIFIER", "TYPE_QUALIFIER")]  # fmt: skip
        seen += [one.get_info(getattr(cl.kernel_info, what)) for what in (
            "FUNCTION_NAME", "NUM_ARGS", "REFERENCE_COUNT", "ATTRIBUTES")]  # fmt: skip
        seen += [one.get_work_group_info(getattr(cl.kernel_work_group_info, what), on) for what in (
            "WORK_GROUP_SIZE", "COMPILE_WORK_GROUP_SIZE", "LOCAL_MEM_SIZE", "PRIVATE_MEM_SIZE")]  # fmt: skip
        seen.append(one.get_info(cl.kernel_info.PROGRAM) == kernel.get_info(cl.kernel_info.PROGRAM))
        try:
            one.get_arg_info(1, cl.kernel_arg_info.NAME)
        except cl.Error as error:
            seen.append(str(error))
    seen.append(hashlib.sha256(program.binaries[0]).hexdigest())
    return seen


def fork(device: Device) -> Any:
    """A child that ends amid its parent's launches, and one that becomes another program."""
    a = device.buffer(np.zeros(N, np.int32))
    kernel = device.kernel("increment")
    seen = []
    for ending in ("return", "exec", None):
        for _ in range(10):
            kernel(device.queue, (N,), None, a)
        if ending is None:
            break
        child = os.fork()
        if child == 0:
            if ending == "exec":
                os.execv(sys.executable, [sys.executable, __file__, sys.argv[1], "all_kernels"])
            sys.exit(3)
        seen.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    return [*seen, device.digest(a)]


#: Kernels that pasta or the compiler library does not take, each with its options.
UNUSUAL = {
    # Its SPIR-V needs an extension. Each sub-group reads what it alone writes.
    "block_read": (
        """kernel void add(global uint *a) {
             uint old = intel_sub_group_block_read(a + get_global_id(0) - get_sub_group_local_id());
             a[get_global_id(0)] = old + 1;
           }""",
        "",
    ),
    # The compiler library crashes over it.
    "assembly": ('kernel void add(global int *a) { __asm__ volatile ("nop"); a[get_global_id(0)] += 1; }', ""),
    "enqueues": (
        """kernel void add(global int *a) {
             a[get_global_id(0)] += 1;
             if (a[0] < 0)
               enqueue_kernel(get_default_queue(), CLK_ENQUEUE_FLAGS_NO_WAIT, ndrange_1D(1), ^{ a[0] = 1; });
           }""",
        "-cl-std=CL2.0",
    ),
}


def unusual(device: Device, name: str) -> Any:
    source, options = UNUSUAL[name]
    a = device.buffer(np.full(N, 7, np.int32))
    cl.Kernel(cl.Program(device.context, source).build(options), "add")(device.queue, (N,), (16,), a)
    return device.digest(a)


def children(device: Device) -> Any:
    """Processes that pasta starts are nobody's children: a program that waits for its own sees none of them."""
    died = []
    signal.signal(signal.SIGCHLD, lambda number, frame: died.append(number))
    digest = launch(device, device.kernel("increment"))
    try:
        os.waitpid(-1, 0)
    except ChildProcessError:
        return [digest, died, sorted(os.listdir("/proc/self/fd"))[:3]]
    return "a child"


CASES: dict[str, Callable[[Device], Any]] = {
    case.__name__: case
    for case in (
        linked, library, linked_options, linked_binary, variables, il, constants, sub_devices, all_kernels, information,
        fork, children,
    )
}  # fmt: skip
CASES |= {name: partial(unusual, name=name) for name in UNUSUAL}

if __name__ == "__main__":
    print(json.dumps(CASES[sys.argv[2]](Device(sys.argv[1]))))
