#!/usr/bin/env python3
"""The windows of text that train_lm draws, found without it: Philox4x32-10 and the uniform draw written a second time.

    text_windows.py --data FILE... --seq N --seed S --batch B --step K

prints the batch of step K (counted from 0) as a JSON list of lists of bytes, seq + 1 each.
"""
import argparse
import json

MASK32 = (1 << 32) - 1
MASK64 = (1 << 64) - 1


def philox4x32_10(counter, key):
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        p0, p1 = c0 * 0xD2511F53, c2 * 0xCD9E8D57
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & MASK32, (p0 >> 32) ^ c3 ^ k1, p0 & MASK32
        k0, k1 = (k0 + 0x9E3779B9) & MASK32, (k1 + 0xBB67AE85) & MASK32
    return c0, c1, c2, c3


def stream(name):
    """FNV-1a, 64 bits."""
    value = 0xCBF29CE484222325
    for letter in name.encode():
        value = ((value ^ letter) * 0x100000001B3) & MASK64
    return value


def bits(seed, stream_number, index):
    """Two 64-bit words."""
    halves = lambda number: (number & MASK32, number >> 32)
    w = philox4x32_10(halves(index) + halves(stream_number), halves(seed))
    return w[0] | w[1] << 32, w[2] | w[3] << 32


def uniform_below(seed, stream_number, index, bound):
    favoured = (1 << 64) % bound
    attempt = 0
    while True:
        for word in bits(seed, (stream_number + attempt * 0x9E3779B97F4A7C15) & MASK64, index):
            if (word * bound) & MASK64 >= favoured:
                return (word * bound) >> 64
        attempt += 1


def window(texts, seq, seed, sequence):
    """The seq + 1 bytes of a sequence, counted from 0 over the whole run."""
    number = uniform_below(seed, stream("data"), sequence, sum(len(text) - seq for text in texts))
    for text in texts:
        if number < len(text) - seq:
            return text[number:number + seq + 1]
        number -= len(text) - seq
    raise AssertionError("a number below the sum is in one of the parts")


def batch(texts, seq, seed, batch_size, step):
    return [window(texts, seq, seed, step * batch_size + i) for i in range(batch_size)]


def add_arguments(parser):
    parser.add_argument("--data", action="append", default=[], metavar="FILE")
    parser.add_argument("--seq", type=int, metavar="N")
    parser.add_argument("--seed", type=int, default=1, metavar="S")
    parser.add_argument("--batch", type=int, metavar="B")
    parser.add_argument("--step", type=int, default=0, metavar="K", help="counted from 0")


def batch_of(arguments):
    texts = [open(name, "rb").read() for name in arguments.data]
    return batch(texts, arguments.seq, arguments.seed, arguments.batch, arguments.step)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    print(json.dumps([list(row) for row in batch_of(parser.parse_args())]))
