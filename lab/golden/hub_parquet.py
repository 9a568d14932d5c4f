#!/usr/bin/env python3
"""Writes datasets/testdata/hub.parquet: the kinds of columns that data sets on hubs have,
as pyarrow writes them. Needs pyarrow."""
import os

import pyarrow as pa
import pyarrow.parquet as pq

strings = pa.list_(pa.string())
table = pa.table({
    "id": ["a", "b", "c"],
    "question": ["q0", "q1", "q2"],
    "answers": pa.array(
        [{"text": ["x", "y"], "answer_start": [1, 2]}, {"text": [], "answer_start": []}, {"text": ["z"], "answer_start": [3]}],
        pa.struct([("text", strings), ("answer_start", pa.list_(pa.int32()))])),
    "tags": pa.array([["a", "b"], None, []], strings),
    "turns": pa.array(
        [[{"role": "user", "content": "hi"}, {"role": "assistant", "content": None}], [], None],
        pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))),
    "sentences": pa.array([[["a", "b"], ["c"]], [[]], []], pa.list_(strings)),
    "big": pa.array(["large", None, "x"], pa.large_string()),
    "f": [1.0, float("nan"), 2.5],
    "blob": pa.array([b"\xff\xfe", b"ok", None], pa.binary()),
    "b": [True, False, None],
    "cat": pa.array(["m", "n", "m"]).dictionary_encode(),
    "empty": pa.array([None, None, None], pa.null()),
})
here = os.path.dirname(os.path.abspath(__file__))
pq.write_table(table, os.path.join(here, "..", "..", "datasets", "testdata", "hub.parquet"))
