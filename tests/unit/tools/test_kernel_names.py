"""Base names of kernels as compilers write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pasta.tools.analysis.kernel_names import base_name


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("axpy", "axpy"),
        ("void gemm<float, 4>(float const*, float*)", "gemm"),
        ("axpy(float*, float)", "axpy"),
        (
            "void at::native::(anonymous namespace)::cat<int, (A)2>(at::B<int>)",
            "at::native::(anonymous namespace)::cat",
        ),
        ("void ns::kernel<(lambda(int)#1}>(int)", "ns::kernel"),
        ("bool operator< <int>(A<int> const&)", "operator<"),
        ("ns::A<int>::operator()(int) const", "ns::A::operator()"),
        ("ampere_sgemm_128x64_nn", "ampere_sgemm_128x64_nn"),
        ("Memcpy HtoD (Pinned -> Device)", "Memcpy HtoD (Pinned -> Device)"),
        ("<<<", "<<<"),
        ("", ""),
    ],
)
def test_base_names(name: str, base: str) -> None:
    assert base_name(name) == base


@given(st.text(alphabet="ab<>():, operator(anonymous namespace)", max_size=60))
def test_any_text_has_a_base_name_that_is_its_own(name: str) -> None:
    assert base_name(name) or not name
