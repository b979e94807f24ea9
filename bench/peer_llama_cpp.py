# SPDX-License-Identifier: BSD-3-Clause
"""Tokens per second of llama.cpp, to compare with shardrt-generate (docs/benchmarks.md, "Decoding").

    peer_llama_cpp.py FILE.gguf THREADS PROMPT_TOKENS NEW_TOKENS

Prints prefill and decoding of one sequence, each the best of three. Needs the package llama-cpp-python.
"""
import ctypes
import sys
import time

import llama_cpp


def decode(context, tokens):
    array = (llama_cpp.llama_token * len(tokens))(*tokens)
    if llama_cpp.llama_decode(context, llama_cpp.llama_batch_get_one(array, len(tokens))) != 0:
        sys.exit("llama_decode failed")
    llama_cpp.llama_synchronize(context)


def main():
    path, threads, nprompt, nnew = sys.argv[1], *map(int, sys.argv[2:5])
    llama_cpp.llama_log_set(ctypes.cast(None, llama_cpp.llama_log_callback), None)
    llama_cpp.llama_backend_init()
    model = llama_cpp.llama_model_load_from_file(path.encode(), llama_cpp.llama_model_default_params())
    options = llama_cpp.llama_context_default_params()
    options.n_ctx = options.n_batch = options.n_ubatch = nprompt + nnew
    options.n_threads = options.n_threads_batch = threads
    best = {"prefill": 0.0, "decode": 0.0}
    for _ in range(3):
        context = llama_cpp.llama_init_from_model(model, options)
        begin = time.perf_counter()
        decode(context, [1 + i % 1000 for i in range(nprompt)])
        middle = time.perf_counter()
        for i in range(nnew):
            decode(context, [1 + i])
        end = time.perf_counter()
        best["prefill"] = max(best["prefill"], nprompt / (middle - begin))
        best["decode"] = max(best["decode"], nnew / (end - middle))
        llama_cpp.llama_free(context)
    print("llama.cpp: prefill %d tokens, %.1f tokens/s; decode %d tokens, %.1f tokens/s"
          % (nprompt, best["prefill"], nnew, best["decode"]))


main()
