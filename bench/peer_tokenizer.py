#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Encoding and decoding a text compared with the Python package tokenizers, on one thread, in one run.

Ours is libshardrt-models, called through ctypes; the peer is tokenizers with RAYON_NUM_THREADS=1. The text is
repeated or cut to --megabytes, and encoded as documents of --document bytes (at line ends; 0: all at once), one
call each, without special tokens. The two alternate (A B A B); the program prints the best times, their
ratio (below 1 ours is faster), and fails if an id or the decoded text differs.

    python3 bench/peer_tokenizer.py [--build DIR] [--megabytes 10] [--document 10000] [--rounds 3] TEXT FOLDER...

Exit status 77 with the reason where the package or the library is missing.
"""
import argparse
import ctypes
import os
import time

os.environ["RAYON_NUM_THREADS"] = "1"  # before the package is imported

from peers import skip


class Ours:
    def __init__(self, build, path):
        self.core = ctypes.CDLL(os.path.join(build, ".libs/libshardrt.so"))
        self.lib = ctypes.CDLL(os.path.join(build, ".libs/libshardrt-models.so"))
        self.core.srt_error_last.restype = ctypes.c_char_p
        self.free = ctypes.CDLL(None).free
        self.free.argtypes = [ctypes.c_void_p]
        self.handle = ctypes.c_void_p()
        self.check(self.lib.srt_tokenizer_open(path.encode(), ctypes.byref(self.handle)))

    def check(self, status):
        if status != 0:
            raise SystemExit(self.core.srt_error_last().decode())

    def encode(self, text):
        ids, n = ctypes.POINTER(ctypes.c_int32)(), ctypes.c_size_t()
        self.check(self.lib.srt_tokenizer_encode(self.handle, text, ctypes.c_size_t(len(text)), 0, ctypes.byref(ids),
                                                 ctypes.byref(n)))
        result = ids[:n.value] if n.value else []
        self.free(ids)
        return result

    def decode(self, ids):
        text, n = ctypes.c_void_p(), ctypes.c_size_t()
        self.check(self.lib.srt_tokenizer_decode(self.handle, (ctypes.c_int32 * len(ids))(*ids),
                                                 ctypes.c_size_t(len(ids)), 0, ctypes.byref(text), ctypes.byref(n)))
        result = ctypes.string_at(text, n.value).decode()
        self.free(text)
        return result


def cut(text, nbytes):
    """Documents of about nbytes, which end at ends of lines."""
    documents, current, size = [], [], 0
    for line in text.splitlines(keepends=True):
        current.append(line)
        size += len(line)
        if nbytes and size >= nbytes:
            documents.append("".join(current))
            current, size = [], 0
    return documents + (["".join(current)] if current else [])


def measure(call, values):
    start = time.perf_counter()
    results = [call(value) for value in values]
    return time.perf_counter() - start, results


def compare(args, folder, documents):
    from tokenizers import Tokenizer

    path = os.path.join(folder, "tokenizer.json")
    ours, peer = Ours(args.build, path), Tokenizer.from_file(path)
    times = {"encode": ([], []), "decode": ([], [])}
    texts = [document.encode() for document in documents]
    for _ in range(args.rounds):
        seconds, ids = measure(ours.encode, texts)
        peer_seconds, encoded = measure(lambda text: peer.encode(text, add_special_tokens=False).ids, documents)
        times["encode"][0].append(seconds)
        times["encode"][1].append(peer_seconds)
        if ids != encoded:
            raise SystemExit(f"{folder}: other ids")
        seconds, decoded = measure(ours.decode, ids)
        peer_seconds, expected = measure(lambda row: peer.decode(row, skip_special_tokens=False), ids)
        times["decode"][0].append(seconds)
        times["decode"][1].append(peer_seconds)
        if decoded != expected:
            raise SystemExit(f"{folder}: another text")
    for name, (mine, theirs) in times.items():
        print(f"{os.path.basename(folder.rstrip('/')):24} {name}  {min(mine):7.2f} s  tokenizers {min(theirs):7.2f} s  "
              f"ratio {min(mine) / min(theirs):.3f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=".")
    parser.add_argument("--megabytes", type=float, default=10)
    parser.add_argument("--document", type=int, default=10000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("text")
    parser.add_argument("folders", nargs="+")
    args = parser.parse_args()
    try:
        import tokenizers
    except ImportError:
        skip("there is no Python package tokenizers")
    if not os.path.exists(os.path.join(args.build, ".libs/libshardrt-models.so")):
        skip("no .libs/libshardrt-models.so in --build")
    with open(args.text, encoding="utf-8", newline="") as f:
        text = f.read()
    nchars = int(args.megabytes * 1e6)
    text = (text * (nchars // len(text) + 1))[:nchars]
    documents = cut(text, args.document)
    print(f"tokenizers {tokenizers.__version__}, {len(text)} characters, {len(documents)} documents")
    for folder in args.folders:
        compare(args, folder, documents)


if __name__ == "__main__":
    main()
