"""Checkpoints and tokens that anyone can make again from their names and shapes, without files and without PyTorch: each element is a hash of its tensor's
name and of its number, a multiple of 2^-22, and so exact in f32 and f64."""
import array
import json
import math
import struct

import text_windows

MASK64 = text_windows.MASK64


def words(name, count):
    """SplitMix64 (Steele et al. 2014), whose state begins with a hash of the name."""
    state, found = text_windows.stream(name), []
    for _ in range(count):
        state = (state + 0x9E3779B97F4A7C15) & MASK64
        x = ((state ^ state >> 30) * 0xBF58476D1CE4E5B9) & MASK64
        x = ((x ^ x >> 27) * 0x94D049BB133111EB) & MASK64
        found.append(x ^ x >> 31)
    return found


def tokens(name, count, vocabulary):
    return [word * vocabulary >> 64 for word in words(name, count)]


def elements(name, shape):
    """In row-major order, uniform around 0 or, of norms and the like, around 1; of a size that a trained model might have."""
    scale, shift = 1 / 8, 0.0
    if name.endswith("dt_bias"):
        scale = 2  # steps of time from 0.1 to 2
    elif len(shape) == 1 and not name.endswith("bias"):
        scale, shift = 1 / 4, 1.0
    elif "embed" in name or name.endswith("gate.weight"):
        scale = 1 / 2
    elif len(shape) == 3:
        scale = 1 / 2  # a convolution's
    return [((word >> 44) / 2**19 - 1) * scale + shift for word in words(name, math.prod(shape))]


def write(folder, config, shapes):
    """config.json, and model.safetensors in f64. shapes: name -> shape."""
    header, data = {}, b""
    for name, shape in shapes.items():
        values = array.array("d", elements(name, shape))
        header[name] = {"dtype": "F64", "shape": shape, "data_offsets": [len(data), len(data) + 8 * len(values)]}
        data += values.tobytes()
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)


def write_tokens(file, numbers):
    """As train_lm --tokens reads them."""
    file.write_bytes(struct.pack(f"<{len(numbers)}H", *numbers))
