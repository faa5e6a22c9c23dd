"""The JSON stream gives what the standard library's parser gives, however the file is cut into pieces and batches."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pasta.errors import PastaError
from pasta.importers import json_stream
from pasta.importers.json_stream import JsonStream, loads
from pasta.importers.packed import Source

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text(max_size=4), VALUES, max_size=4)


class Pieces(Source):
    """A source that gives its content in pieces of one size."""

    def __init__(self, content: bytes, size: int) -> None:
        super().__init__(Path("test.json"), len(content), Path())
        self.content = content
        self.piece = size
        self.given = 0

    def read(self, chunk: int = 0) -> Iterator[bytes]:
        for start in range(0, len(self.content), self.piece):
            self.given += 1
            yield self.content[start : start + self.piece]


def stream(content: bytes, size: int = 1 << 20) -> JsonStream[Any]:
    return JsonStream(
        Pieces(content, size), "items", msgspec.json.Decoder(list[dict[str, Any]]).decode, lambda value: None
    )


def elements(parsed: JsonStream[Any]) -> list[Any]:
    return [item for batch in parsed.batches() for item in batch]


@given(
    items=st.lists(OBJECTS, max_size=12),
    before=st.dictionaries(st.text(max_size=4).filter(lambda name: name != "items"), VALUES, max_size=3),
    after=st.dictionaries(st.text(max_size=4).filter(lambda name: name != "items"), VALUES, max_size=3),
    indent=st.sampled_from([None, 0, 2]),
    bare=st.booleans(),
    piece=st.integers(1, 50),
    batch=st.sampled_from([1, 16, 64, 1 << 20]),
)
@settings(max_examples=150)
def test_elements_and_header_are_those_of_the_document(
    items: list[Any],
    before: dict[str, Any],
    after: dict[str, Any],
    indent: int | None,
    bare: bool,
    piece: int,
    batch: int,
) -> None:
    after = {name: value for name, value in after.items() if name not in before}
    value = items if bare else {**before, "items": items, **after}
    text = json.dumps(value, indent=indent)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_stream, "BATCH_BYTES", batch)
        parsed = stream(text.encode(), piece)
        assert elements(parsed) == items
    assert plain(parsed.header) == ({} if bare else plain({**before, **after}))
    assert not parsed.skipped
    assert parsed.broken is None


def plain(value: Any) -> Any:
    """Numbers with a fraction are kept as they were written: compare them as such."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return float(value) if isinstance(value, float | json_stream.Number) else value


@given(items=st.lists(OBJECTS, min_size=1, max_size=8), cut=st.integers(0, 1000), batch=st.sampled_from([16, 1 << 20]))
@settings(max_examples=100)
def test_a_cut_document_gives_the_elements_before_the_cut(items: list[Any], cut: int, batch: int) -> None:
    texts = [json.dumps(item) for item in items]
    text = '{"items": [' + ", ".join(texts) + "]}"
    at = 11 + cut % (len(text) - 11)
    ends = [11 + len(", ".join(texts[: n + 1])) for n in range(len(texts))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_stream, "BATCH_BYTES", batch)
        parsed = stream(text[:at].encode())
        assert elements(parsed) == [item for item, end in zip(items, ends, strict=True) if end <= at]
    # What is missing at the very end, after the array, is only the closing brace.
    assert (parsed.broken is None) == (at == len(text))


@given(content=st.binary(max_size=200))
@settings(max_examples=150)
def test_any_bytes_end_in_elements_or_an_error(content: bytes) -> None:
    for start in (b"[", b'{"items": [', b'{"items": [{"a": "'):
        elements(stream(start + content, 7))
    with contextlib.suppress(PastaError):
        elements(stream(content, 7))


def test_an_element_without_an_end_is_given_up_in_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_stream, "MAX_ITEM_BYTES", 1 << 16)
    for endless in (b'"', b'{"a": ', b"[" * 40):
        source = Pieces(b'{"items": [{"good": 1}, {"x": ' + endless + b" 1," * (1 << 20), 1 << 10)
        parsed = JsonStream(source, "items", msgspec.json.Decoder(list[dict[str, Any]]).decode, lambda value: None)
        assert elements(parsed) == [{"good": 1}]
        assert parsed.broken is not None
        # The first batch, then at most twice the limit: far from the 3 MiB that follow.
        assert source.given * 1024 < json_stream.BATCH_BYTES + (1 << 18)


def test_an_element_with_too_many_brackets_is_given_up_before_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_stream, "MAX_ITEM_MARKS", 1000)
    source = Pieces(b'[{"good": 1}, {"x": ' + b"[" * (6 << 20), 1 << 10)
    parsed = JsonStream(source, "", msgspec.json.Decoder(list[dict[str, Any]]).decode, lambda value: None)
    assert elements(parsed) == [{"good": 1}]
    assert parsed.broken is not None
    assert source.given * 1024 < json_stream.BATCH_BYTES + (1 << 18)


def test_a_missing_quote_costs_the_line_that_it_is_on() -> None:
    text = b'[\n{"a": "one"},\n{"a": "two},\n{"a": "three"}\n]'
    parsed = stream(text)
    assert {"a": "one"} in elements(parsed)
    assert sum(parsed.skipped.values()) >= 1


def test_very_deep_nesting_is_skipped() -> None:
    deep = b'{"a": ' * 100_000 + b"1" + b"}" * 100_000
    parsed = stream(b'[{"good": 1}, ' + deep + b', {"fine": 2}]')
    assert elements(parsed) == [{"good": 1}, {"fine": 2}]
    assert parsed.skipped == {"element that is not JSON": 1}


def test_the_tolerant_parser_keeps_numbers_and_replaces_what_is_no_text() -> None:
    assert loads(b'{"a": 1.10, "b": NaN, "c": "x\ty"}') == {"a": "1.10", "b": None, "c": "x\ty"}
    assert loads(b'"\xff"') == "\ufffd"
    assert loads(b'["\\ud800", {"\\udfff": 1}]') == ["?", {"?": 1}]
