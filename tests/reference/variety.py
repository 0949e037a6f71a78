"""A test of tests: the inputs on which oracles and golden files rest are varied. One token that is repeated, a tensor of one value, or sequences that are
copies of each other agree with anything, and show nothing of positions, masks and tables. Each script in this folder asks here about what it feeds;
tools_test.py asks about the committed files."""
import collections
import json
import math
import pathlib
import struct


class TooAlike(SystemExit):
    """The sentence is the exit message of a script."""


def require(holds, what, why):
    if not holds:
        raise TooAlike(f"{what} are too alike to show anything: {why}")


def tokens(what, sequences, below=None, contains=()):
    """Sequences of whole numbers; `below`: the size of their vocabulary, every eighth of which they must meet, as its shards on several ranks have tokens
    only then; `contains`: tokens that must be among them."""
    sequences = [list(sequence) for sequence in sequences]
    flat = [token for sequence in sequences for token in sequence]
    require(flat, what, "there are none")
    distinct, span = collections.Counter(flat), max(flat) - min(flat) + 1
    floor = max(4, below // 8 if below else min(12, span // 2))
    require(len(distinct) >= floor, what, f"{len(distinct)} distinct of {len(flat)} tokens, and at least {floor} are needed")
    others = len({tuple(sequence) for sequence in sequences})  # drawn with replacement, some may be the same
    require(4 * others >= 3 * len(sequences), what, f"{others} distinct of {len(sequences)} sequences")
    same = sum(a == b for sequence in sequences for a, b in zip(sequence, sequence[1:]))
    require(2 * same <= len(flat), what, f"{same} of {len(flat)} tokens repeat the one before")
    (most, times), = distinct.most_common(1)
    require(2 * times <= len(flat), what, f"more than half of them are {most}")
    if below:
        missing = [eighth for eighth in range(8) if not any(eighth == 8 * token // below for token in distinct)]
        require(not missing, what, f"none is in these eighths of a vocabulary of {below}: {missing}")
    for token in contains:
        require(token in distinct, what, f"{token} is not among them")


def lengths(what, numbers):
    """Of documents, or of other parts."""
    require(len(set(numbers)) >= min(3, len(numbers) - 1), what, f"{len(set(numbers))} distinct lengths of {len(numbers)}")


def document_lengths(sequences, end):
    """Of the documents that a token ends, in sequences of them."""
    found = []
    for sequence in sequences:
        ends = [i for i, token in enumerate(sequence) if token == end]
        found += [b - a for a, b in zip([-1, *ends], [*ends, len(sequence) - 1]) if b > a]
    return found


def numbers(what, values):
    """The elements of one tensor of drawn or computed numbers. A gradient may have many zeros; other values repeat by chance only."""
    require(all(math.isfinite(value) for value in values), what, "some are not finite")
    if len(values) < 8:
        return
    others = [value for value in values if value != 0]
    require(4 * len(others) >= len(values), what, f"{len(values) - len(others)} of {len(values)} are zero")
    require(2 * len(set(others)) >= len(others), what, f"{len(set(others))} distinct of {len(others)} numbers")


def rows(values, shape):
    """Of the last dimension."""
    return [values[i:i + shape[-1]] for i in range(0, len(values), shape[-1])]


def tensors(where, named):
    """named: name -> (shape, values, whether they are whole numbers by type)."""
    for name, (shape, values, is_whole) in named.items():
        what = f"{where}: the elements of {name}"
        if not shape:  # a setting
            require(math.isfinite(values[0]), what, "it is not finite")
        elif is_whole:
            tokens(what, rows(values, shape))
        else:
            numbers(what, values)


def safetensors(file):
    """The tensors of a file of f64 and i64, as tensors() takes them."""
    data = pathlib.Path(file).read_bytes()
    size, = struct.unpack("<Q", data[:8])
    found = {}
    for name, one in json.loads(data[8:8 + size]).items():
        if name == "__metadata__":
            continue
        begin, end = one["data_offsets"]
        kind = {"F64": "d", "I64": "q"}[one["dtype"]]
        found[name] = one["shape"], struct.unpack(f"<{(end - begin) // 8}{kind}", data[8 + size + begin:8 + size + end]), kind == "q"
    return found
