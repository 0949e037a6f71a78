#!/usr/bin/env python3
"""Writes small checkpoints and files of tokens byte by byte, as their formats say: io_files.py FOLDER. What it writes is in
tests/reference/golden/io; tests/io reads it. Element i of a tensor is (i - 3) / 4, exact in every type."""
import json
import math
import pathlib
import struct
import sys

import variety

PACK = {"F64": lambda v: struct.pack("<d", v), "F32": lambda v: struct.pack("<f", v), "F16": lambda v: struct.pack("<e", v),
        "BF16": lambda v: struct.pack("<f", v)[2:], "I64": lambda v: struct.pack("<q", int(v))}
TENSORS = {"vector.f64": ("F64", [5]), "matrix.f32": ("F32", [4, 6]), "matrix.bf16": ("BF16", [4, 6]), "cube.f16": ("F16", [2, 3, 4]),
           "scalar.f32": ("F32", []), "nothing.bf16": ("BF16", [0, 3]), "steps.i64": ("I64", [2])}
SPECIAL = {"special.f16": ("F16", [0.0, -0.0, 2.0**-24, 1023 * 2.0**-24, 2.0**-14, 65504.0, math.inf, -math.inf, math.nan]),
           "special.bf16": ("BF16", [0.0, -0.0, 2.0**-133, 2.0**-126, 255 * 2.0**120, math.inf, -math.inf, math.nan])}


def number(i, type_name):
    return i if type_name == "I64" else (i - 3) / 4


def safetensors(tensors):
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name in tensors:
        if name in SPECIAL:
            type_name, values = SPECIAL[name]
            shape = [len(values)]
        else:
            type_name, shape = TENSORS[name]
            values = [number(i, type_name) for i in range(math.prod(shape))]
        elements = b"".join(PACK[type_name](value) for value in values)
        header[name] = {"dtype": type_name, "shape": shape, "data_offsets": [len(data), len(data) + len(elements)]}
        data += elements
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def npy(version, type_name, code, shape, tokens):
    text = f"{{'descr': '{type_name}', 'fortran_order': False, 'shape': {shape!r}, }}"
    length = "<H" if version == 1 else "<I"
    start = 8 + struct.calcsize(length)
    text += " " * (-(start + len(text) + 1) % 64) + "\n"
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack(length, len(text)) + text.encode() + struct.pack(f"<{len(tokens)}{code}", *tokens)


def write(folder):
    folder = pathlib.Path(folder)
    for name in "single", "sharded":
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "single" / "model.safetensors").write_bytes(safetensors([*TENSORS, *SPECIAL]))
    shards = {"model-00001-of-00002.safetensors": ["matrix.f32", "steps.i64", "cube.f16", "scalar.f32"],
              "model-00002-of-00002.safetensors": ["special.bf16", "vector.f64", "matrix.bf16", "nothing.bf16", "special.f16"]}
    for shard, names in shards.items():
        (folder / "sharded" / shard).write_bytes(safetensors(names))
    weight_map = {name: shard for shard, names in shards.items() for name in names}
    index = json.dumps({"metadata": {"total_size": 0}, "weight_map": weight_map}, indent=2, sort_keys=True)
    (folder / "sharded" / "model.safetensors.index.json").write_text(index + "\n")

    tokens = [7 * i % 303 for i in range(60)]
    variety.tokens("the tokens", [tokens], 303)
    (folder / "tokens.u16").write_bytes(struct.pack("<60H", *tokens))
    (folder / "tokens.u32").write_bytes(struct.pack("<60I", *tokens))
    for version, type_name, code in (1, "<u2", "H"), (2, "<u4", "I"), (3, "<i4", "i"), (1, "<i8", "q"):
        (folder / f"tokens_{type_name[1:]}.npy").write_bytes(npy(version, type_name, code, (60,), tokens))
    (folder / "tokens_rows.npy").write_bytes(npy(1, "<u2", "H", (5, 12), tokens))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    write(sys.argv[1])
