# SPDX-License-Identifier: BSD-3-Clause
"""GGUF files of shardrt-ckpt convert --to gguf in the readers of others. Run by test_gguf.sh and test_smollm2_long.sh.

    gguf_readers.py SHARDRT_CKPT FOLDER CASES    folders of models in FOLDER and of recorded ones in CASES: gguf reads them and
                                                 quantizes to the same bytes; models made by transformers have the same logits
                                                 by gguf_file there and in llama.cpp, recorded tokenizers the same ids
    gguf_readers.py perplexity FILE TEXT         of llama.cpp: windows of 512 tokens

Packages that are missing are named.
"""
import glob
import os
import subprocess
import sys

import numpy

try:
    import llama_cpp
except ImportError:
    llama_cpp = None


def convert(tool, folder, out, *options):
    """Returns whether it was written: a model that readers lack is refused."""
    run = subprocess.run([tool, "convert", "--to", "gguf", *options, folder, out], capture_output=True, text=True)
    assert run.returncode == 0 or "readers of GGUF" in run.stderr, run.stderr
    return run.returncode == 0


# ---- gguf

def check_gguf(tool, folder, out):
    """Keys and names are known; other types have the bytes that gguf quantizes to."""
    import gguf
    if not convert(tool, folder, out, "--dtype", "f32"):
        return 0
    reader = gguf.GGUFReader(out)
    name = reader.fields["general.architecture"].contents()
    arch = next(a for a, text in gguf.MODEL_ARCH_NAMES.items() if text == name)
    blocks = reader.fields[name + ".block_count"].contents()
    known = {gguf.TENSOR_NAMES[t].format(bid=b) for t in gguf.MODEL_TENSORS[arch] for b in range(blocks)}
    for tensor in reader.tensors:
        assert tensor.name.rsplit(".", 1)[0] in known, tensor.name
    plain = {t.name: t.data.copy() for t in reader.tensors}
    for dtype, kind in ("f16", "F16"), ("bf16", "BF16"), ("q8_0", "Q8_0"):
        convert(tool, folder, out, "--dtype", dtype)
        for tensor in gguf.GGUFReader(out).tensors:
            want = tensor.tensor_type
            assert want.name in ("F32", kind, "F16"), tensor.name
            data = gguf.quants.quantize(plain[tensor.name], want)
            assert data.tobytes() == tensor.data.tobytes(), (folder, tensor.name, want)
    return 1


# ---- llama.cpp

def quiet():
    callback = llama_cpp.llama_log_callback(lambda level, text, data: None)
    llama_cpp.llama_log_set(callback, None)
    return callback


def open_llama(path, length):
    parameters = llama_cpp.llama_model_default_params()
    model = llama_cpp.llama_model_load_from_file(path.encode(), parameters)
    assert model, path
    parameters = llama_cpp.llama_context_default_params()
    parameters.n_ctx = parameters.n_batch = parameters.n_ubatch = max(length, 64)
    parameters.n_threads = parameters.n_threads_batch = 2
    parameters.type_k = parameters.type_v = 0  # F32
    parameters.flash_attn_type = 0
    return model, llama_cpp.llama_init_from_model(model, parameters)


def llama_logits(model, context, ids):
    llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(context), True)
    batch = llama_cpp.llama_batch_init(len(ids), 0, 1)
    batch.n_tokens = len(ids)
    for i, token in enumerate(ids):
        batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0], batch.logits[i] = int(token), i, 1, 0, 1
    assert llama_cpp.llama_decode(context, batch) == 0
    llama_cpp.llama_batch_free(batch)
    vocab = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
    return numpy.ctypeslib.as_array(llama_cpp.llama_get_logits(context), shape=(len(ids), vocab)).copy()


def llama_ids(model, text, special):
    vocab, data = llama_cpp.llama_model_get_vocab(model), text.encode()
    ids = (llama_cpp.llama_token * (len(data) + 16))()
    n = llama_cpp.llama_tokenize(vocab, data, len(data), ids, len(ids), special, True)
    assert n >= 0
    return list(ids[:n])


def close_llama(model, context):
    llama_cpp.llama_free(context)
    llama_cpp.llama_model_free(model)


def perplexity(path, text):
    model, context = open_llama(path, 512)
    with open(text, "rb") as file:
        ids = llama_ids(model, file.read().decode(errors="strict"), False)
    total, count = 0.0, 0
    for at in range(0, len(ids), 512):
        window = numpy.array(ids[at:at + 512])
        logits = llama_logits(model, context, window).astype(numpy.float64)[:-1]
        logits -= logits.max(1, keepdims=True)
        total += (numpy.log(numpy.exp(logits).sum(1)) - logits[numpy.arange(len(window) - 1), window[1:]]).sum()
        count += len(window) - 1
    close_llama(model, context)
    return numpy.exp(total / count)


# ---- logits of models

def make_models():
    """What transformers reads of a GGUF file: it takes other values from its defaults."""
    import transformers as t
    sizes = dict(hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                 vocab_size=320, max_position_embeddings=128, bos_token_id=None, eos_token_id=None, pad_token_id=None)
    yield "llama", t.LlamaForCausalLM(t.LlamaConfig(**sizes, tie_word_embeddings=True))
    yield "mistral", t.MistralForCausalLM(t.MistralConfig(**sizes, sliding_window=None))
    yield "qwen2", t.Qwen2ForCausalLM(t.Qwen2Config(**sizes))
    yield "qwen3", t.Qwen3ForCausalLM(t.Qwen3Config(**sizes, head_dim=128))
    sizes.update(num_hidden_layers=7, head_dim=256, sliding_window=9)
    yield "gemma3_text", t.Gemma3ForCausalLM(t.Gemma3TextConfig(**sizes))
    yield "gpt2", t.GPT2LMHeadModel(t.GPT2Config(n_embd=64, n_layer=2, n_head=4, bos_token_id=None, eos_token_id=None))


def compare(name, what, got, want, tolerance):
    difference = numpy.linalg.norm(got - want) / numpy.linalg.norm(want)
    print("%s, %s: logits differ by %.1e" % (name, what, difference))
    assert difference < tolerance, (name, what, difference)


# What rounding the matrices does.
TOLERANCES = {"f32": 1e-5, "f16": 5e-3, "q8_0": 5e-2}
# llama.cpp has a table in F16, of the tanh form.
GELU_TOLERANCE = 2e-3


def check_models(tool, folder, cases):
    import torch
    import transformers
    torch.manual_seed(7)
    transformers.utils.logging.set_verbosity_error()
    models = [(os.path.basename(os.path.dirname(p)), p, transformers.AutoModelForCausalLM.from_pretrained(
        p, attn_implementation="eager", dtype=torch.float32)) for p in sorted(glob.glob(cases + "/hf_*/model"))]
    for name, model in make_models():
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.1)
        path = os.path.join(folder, "made_" + name)
        model.save_pretrained(path)
        models.append((name, path, model.eval()))
    for name, path, model in models:
        is_made = os.path.basename(path).startswith("made_")
        for dtype in TOLERANCES if name == "llama" else ("f32",):
            out = os.path.join(folder, name + "-" + dtype + ".gguf")
            if not convert(tool, path, out, "--dtype", dtype):
                break
            length = 20 if name not in ("hf_mistral_1", "hf_qwen2_2") else 5  # within their windows
            ids = torch.randint(3, model.config.vocab_size, (1, length))
            with torch.no_grad():
                want = model(ids).logits[0].numpy()
            if llama_cpp:
                opened = open_llama(out, length)
                compare(name, "llama.cpp, " + dtype, llama_logits(*opened, ids[0].tolist()), want,
                        GELU_TOLERANCE if "gpt" in name or "gemma" in name else TOLERANCES[dtype])
                close_llama(*opened)
            if is_made:
                read = transformers.AutoModelForCausalLM.from_pretrained(
                    folder, gguf_file=os.path.basename(out), attn_implementation="eager", dtype=torch.float32)
                with torch.no_grad():
                    got = read(ids).logits[0].numpy()
                compare(name, "transformers, " + dtype, got, want, TOLERANCES[dtype])


def check_tokenizers(tool, folder, cases):
    import tokenizers
    texts = ["Hello, the  world's 12345 words\n\n\n  x = 3.14159;\tfoo()\r\n", "   leading", "trailing   ", "", "a",
             "\u00e9\u00e0\u00fc \u4f60\u597d\u4e16\u754c \u0645\u0631\u062d\u0628\u0627 \U0001f642 don't DON'T I'LL",
             "<|im_start|>user\nhi<|im_end|>\n<s>x</s>"]
    for path in sorted(glob.glob(folder + "/tokenizer_*/tokenizer.json")):
        out = os.path.join(folder, "tokenizer.gguf")
        assert convert(tool, os.path.dirname(path), out)
        model, context = open_llama(out, 64)
        tokenizer = tokenizers.Tokenizer.from_file(path)
        for text in texts:
            for special in False, True:
                want = tokenizer.encode(text, add_special_tokens=special).ids
                got = llama_ids(model, text, special)
                assert got == want, (path, text, got, want)
        close_llama(model, context)
        print("%s: llama.cpp has the ids of %d texts" % (os.path.basename(os.path.dirname(path)), len(texts)))


def main():
    if sys.argv[1] == "perplexity":
        print("perplexity %.6f" % perplexity(sys.argv[2], sys.argv[3]))
        return
    tool, folder, cases = sys.argv[1:4]
    folders = [os.path.dirname(p) for p in sorted(glob.glob(folder + "/*/model*.safetensors"))]
    folders += sorted(glob.glob(cases + "/hf_*/model"))
    read = sum(check_gguf(tool, path, os.path.join(folder, "python.gguf")) for path in dict.fromkeys(folders)
               if os.path.basename(path) != "refused")
    print("gguf reads %d models" % read)
    assert read > 0
    try:
        import torch  # noqa: F401
        import transformers  # noqa: F401
    except ImportError:
        print("skipped: logits (no Python with torch and transformers)")
    else:
        check_models(tool, folder, cases)
    try:
        import tokenizers  # noqa: F401
    except ImportError:
        print("skipped: ids of tokenizers (no Python with tokenizers)")
    else:
        if llama_cpp:
            check_tokenizers(tool, folder, cases)
    if not llama_cpp:
        print("skipped: llama.cpp (no Python with llama_cpp)")


if __name__ == "__main__":
    if llama_cpp:
        KEPT = quiet()  # the callback lives as long as the program
    main()
