#!/usr/bin/env python3
"""Compares two runs of train_lm: their logs and, given as well, the weights that they dumped.

    check_equivalence.py [--dtype f64|f32] REFERENCE_LOG LOG [REFERENCE_FOLDER FOLDER]

prints the largest differences and exits with 1 where they are beyond the tolerances of the type. Standard library only.
"""
import argparse
import array
import json
import math
import pathlib
import struct
import sys

# Relative to the reference: the logged numbers; and max|a - b| over max|b| of each tensor, since elementwise relative
# error means nothing under Adam near zero. In f32, Adam turns rounding near a zero gradient into steps of its full size,
# so there the weights are only kept from being something else altogether.
TOLERANCES = {
    "f64": {"loss": 1e-10, "aux_loss": 1e-10, "z_loss": 1e-10, "mtp_loss": 1e-10, "grad_norm": 1e-10, "lr": 1e-14, "final_loss": 1e-10, "weights": 1e-9},
    "f32": {"loss": 1e-4, "aux_loss": 1e-3, "z_loss": 1e-3, "mtp_loss": 1e-3, "grad_norm": 1e-3, "lr": 1e-6, "final_loss": 1e-4, "weights": 0.5},
}
STEP_NUMBERS = ("loss", "aux_loss", "z_loss", "grad_norm", "lr")
NONE_WITHOUT_TARGETS = ("loss", "final_loss")  # null where nothing was to be predicted


class Difference(Exception):
    """Two runs differ by more than a tolerance, or in kind."""


def read_log(path):
    """The steps and the closing line. Every line is checked against the contract of --log."""
    def refuse(number, why):
        raise Difference(f"{path}:{number}: {why}")

    lines = pathlib.Path(path).read_text().splitlines()
    steps, end = [], None
    for number, line in enumerate(lines, 1):
        try:
            entry = json.loads(line, parse_constant=lambda name: refuse(number, f"{name} is not a number"))
        except json.JSONDecodeError as error:
            refuse(number, f"is not JSON: {error}")
        if end is not None:
            refuse(number, "comes after the end")
        if entry.get("event") == "end":
            end = entry
            wanted = ("final_loss",)
        else:
            steps.append(entry)
            wanted = STEP_NUMBERS + ("tokens_per_s",)
            if entry.get("step") != len(steps):
                refuse(number, f"is step {entry.get('step')}, should be {len(steps)}")
            axes = {"dp", "pp", "ep", "cp", "tp"} | ({"edp", "etp"} if "experts" in entry else set())
            if set(entry.get("bytes", {})) != axes:
                refuse(number, f"bytes are not those of {', '.join(sorted(axes))}")
        for key in wanted:
            if key in NONE_WITHOUT_TARGETS and key in entry and entry[key] is None:
                continue
            if not isinstance(entry.get(key), (int, float)) or not math.isfinite(entry[key]):
                refuse(number, f"{key} is {entry.get(key)}")
    if end is None:
        refuse(len(lines), "the log does not end with its end")
    return steps, end


def relative(value, reference):
    return 0.0 if value == reference else abs(value - reference) / max(abs(reference), sys.float_info.min)


def read_weights(folder):
    """name -> (type, shape, values)"""
    data = (pathlib.Path(folder) / "model.safetensors").read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8:8 + length])
    weights = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        code = {"F64": "d", "F32": "f"}.get(entry["dtype"])
        if code is None:
            raise Difference(f"{folder}: {name} is {entry['dtype']}, neither F64 nor F32")
        begin, end = entry["data_offsets"]
        values = array.array(code, data[8 + length + begin:8 + length + end])
        if sys.byteorder == "big":
            values.byteswap()
        if len(values) != math.prod(entry["shape"]):
            raise Difference(f"{folder}: {name} has {len(values)} values for the shape {entry['shape']}")
        weights[name] = entry["dtype"], entry["shape"], values
    return weights


def tensor_difference(values, reference):
    """max|a - b| / max|b|; not a number counts as infinite."""
    largest = max(map(abs, reference), default=0.0)
    difference = max((abs(a - b) for a, b in zip(values, reference)), default=0.0)
    if not all(map(math.isfinite, values)) or not all(map(math.isfinite, reference)):
        return math.inf
    return 0.0 if difference == 0 else difference / largest if largest else math.inf


def compare_experts(where, experts, wanted):
    """The loads of layers: every token has chosen the same. How even those of ranks are depends on the mesh."""
    def of_mesh(layers):
        return None if layers is None else [{k: v for k, v in layer.items() if k not in ("rank_load", "node_load", "bias")} for layer in layers]

    if of_mesh(experts) != of_mesh(wanted):
        raise Difference(f"{where}: experts are {experts!r}, should be {wanted!r}")
    for layer, other in zip(experts or [], wanted or []):
        if any(abs(a - b) > 1e-9 for a, b in zip(layer.get("bias", []), other.get("bias", []))):
            raise Difference(f"{where}: biases are from {layer['bias']}, should be from {other['bias']}")


def compare_logs(reference, log, tolerances):
    """The largest relative difference of each number."""
    (steps_of_reference, end_of_reference), (steps, end) = read_log(reference), read_log(log)
    if len(steps) != len(steps_of_reference):
        raise Difference(f"{log} has {len(steps)} steps, {reference} {len(steps_of_reference)}")
    pairs = [(f"step {a['step']}", key, a[key], b[key]) for a, b in zip(steps, steps_of_reference)
             for key in (*STEP_NUMBERS, *(["mtp_loss"] if "mtp_loss" in b else []))]
    pairs.append(("end", "final_loss", end["final_loss"], end_of_reference["final_loss"]))
    for a, b in zip(steps, steps_of_reference):
        compare_experts(f"step {a['step']}", a.get("experts"), b.get("experts"))
    largest = {}
    for where, key, value, wanted in pairs:
        if (value is None) != (wanted is None):
            raise Difference(f"{where}: {key} is {value!r}, should be {wanted!r}")
        difference = 0.0 if value is None else relative(value, wanted)
        if difference > tolerances[key]:
            raise Difference(f"{where}: {key} is {value!r}, should be {wanted!r}: {difference:.1e} apart, {tolerances[key]:.0e} allowed")
        largest[key] = max(largest.get(key, 0.0), difference)
    return largest


def compare_weights(reference, folder, tolerance):
    """The largest difference of a tensor; config.json has to be the same."""
    configs = [json.loads((pathlib.Path(f) / "config.json").read_text()) for f in (reference, folder)]
    if configs[0] != configs[1]:
        raise Difference(f"config.json differs: {reference} {folder}")
    wanted, weights = read_weights(reference), read_weights(folder)
    if wanted.keys() != weights.keys():
        raise Difference(f"tensors in only one of the dumps: {', '.join(sorted(wanted.keys() ^ weights.keys()))}")
    largest = 0.0
    for name, (dtype, shape, values) in weights.items():
        if (dtype, shape) != wanted[name][:2]:
            raise Difference(f"{name} is {dtype}{shape}, should be {wanted[name][0]}{wanted[name][1]}")
        difference = tensor_difference(values, wanted[name][2])
        if difference > tolerance:
            raise Difference(f"{name}: max|a-b| is {difference:.1e} of max|b|, {tolerance:.0e} allowed")
        largest = max(largest, difference)
    return largest


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", choices=TOLERANCES, default="f64")
    parser.add_argument("paths", nargs="+", metavar="PATH")
    arguments = parser.parse_args()
    if len(arguments.paths) not in (2, 4):
        parser.error("give two logs, or two logs and two folders")
    tolerances = TOLERANCES[arguments.dtype]
    try:
        largest = compare_logs(*arguments.paths[:2], tolerances)
        if len(arguments.paths) == 4:
            largest["weights"] = compare_weights(*arguments.paths[2:], tolerances["weights"])
    except (Difference, OSError) as error:
        sys.exit(f"different: {error}")
    print("the same within", ", ".join(f"{key} {value:.1e}" for key, value in largest.items()))


if __name__ == "__main__":
    main()
