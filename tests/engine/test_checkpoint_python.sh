#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# What we save is read by the format's own library, and what that saves is read by us. What that refuses is refused
# by us: headers that are odd or damaged, those of the fuzz target's corpus, and random damage to some of them.
. "$srcdir/tests/harness/run_ranks.sh"

python=${PYTHON:-python3}
$python -c 'import numpy, safetensors.numpy' 2> /dev/null ||
	skip "no Python with numpy and safetensors (PYTHON names another one)"
dir=tests/engine/test_checkpoint_python.dir
rm -rf $dir
mkdir -p $dir || exit 1
trap 'rm -rf $dir' EXIT

run_ranks 2 tests/engine/test_checkpoint save $dir/ours zero3
$python - $dir/ours $dir/theirs <<'END' || exit 1
import sys
from safetensors import safe_open
from safetensors.numpy import save_file

with safe_open(sys.argv[1], framework="numpy") as f:
    tensors = {name: f.get_tensor(name) for name in f.keys()}
    assert f.metadata() == {"format": "pt", "step": "17"}, f.metadata()
shapes = {name: (t.dtype.name, t.shape) for name, t in tensors.items()}
assert shapes == {
    "embed.weight": ("float32", (7, 5)),
    "blocks.0.weight": ("float32", (3, 2, 4)),
    "blocks.0.bias": ("float32", (2,)),
    "blocks.0.none": ("float32", (0, 3)),
    "blocks.0.five": ("float32", (3, 2, 1, 4, 5)),
    "a.last": ("float32", (1031,)),
}, shapes
save_file(tensors, sys.argv[2], metadata={"format": "np"})
END
run_ranks 2 tests/engine/test_checkpoint load $dir/theirs zero3

mkdir $dir/odd || exit 1
$python - $dir/odd "$srcdir/tests/fuzz/corpus/safetensors" <<'END' || exit 1
import os, random, struct, sys

def entry(name, dtype="F32", shape="[1]", offsets="[0,4]"):
    return '"%s":{"dtype":"%s","shape":%s,"data_offsets":%s}' % (name, dtype, shape, offsets)

x, y = entry("x"), entry("y", offsets="[4,8]")
both = "{" + x + "," + y + "}"
metadata = '"__metadata__":{"format":"pt","a":"\\u00e4\\ud83d\\ude00"}'
cases = [(t.encode(), n) for t, n in [
    ("{}", 0), ("{}", 1), ("{}   ", 0), (" {}", 0), ("{}\n", 0), ("\ufeff{}", 0), ("{} {}", 0), ("{},", 0), ("", 0),
    ("[]", 0), ("{" + x + "}", 4), ("{" + x + "}", 5), ("{" + x + "}", 3), (both, 8), (both, 9),
    ("{" + y + "," + x + "}", 8), ("{" + y + "}", 8), ("{" + x + "," + x + "}", 4), ("{" + x + ",}", 4),
    ("{" + metadata + "," + x + "}", 4), ("{" + x + "," + metadata + "}", 4), ("{" + metadata + "}", 0),
    ("{" + metadata + "," + metadata + "}", 0), ('{"__metadata__":null}', 0), ('{"__metadata__":{"a":null}}', 0),
    ('{"__metadata__":{"a":1}}', 0), ('{"__metadata__":[]}', 0), ('{"a":{}}', 0), ('{"a":null}', 0),
    ("{" + x[:-1] + ',"more":1}}', 4), ("{" + x[:-1] + ',"dtype":"F32"}}', 4),
    ("{" + entry("\\ud800") + "}", 4), ("{" + entry("\\udc00") + "}", 4), ("{" + entry("\\u0000") + "}", 4),
    ("{" + entry("\t") + "}", 4), ("{" + entry("\\/\\b\\f") + "}", 4), ("{" + entry("\\x") + "}", 4), ("{" + entry("\0") + "}", 4),
    ("{" + entry("x", shape="[0]", offsets="[0,0]") + "}", 0), ("{" + entry("x", shape="[]") + "}", 4),
    ("{" + entry("x", shape="[0]", offsets="[0,0]") + "," + entry("y") + "}", 4),
    ("{" + entry("x", shape="[0]", offsets="[2,2]") + "," + entry("y") + "}", 4),
    ("{" + entry("x", shape="[4294967296,4294967296,0]", offsets="[0,0]") + "}", 0),
    ("{" + entry("x", shape="[0,4294967296,4294967296]", offsets="[0,0]") + "}", 0),
    ("{" + entry("x", shape="[9223372036854775807,2]", offsets="[0,0]") + "}", 0),
    ("{" + entry("x", offsets="[0,4,4]") + "}", 4), ("{" + entry("x", offsets="[4,0]") + "}", 4),
    ("{" + entry("x", offsets="[0,5]") + "}", 5), ("{" + entry("x", offsets="[-4,0]") + "}", 4),
] + [("{" + entry("x", shape="[%s]" % n) + "}", 4) for n in
     ("01", "1.0", "1e0", "-0", "-1", "+1", "1 ", " 1", "1,", ",1", "1,1", "null", "true", '"1"', "[1]", "0x1", "",
      "18446744073709551616")]
  + [("{" + entry("x", dtype=d, offsets="[0,%d]" % n) + "}", n)
     for d in ("BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "I16", "U16", "F16", "BF16", "I32", "U32", "F32", "F64", "I64",
               "U64", "F4", "F6_E2M3", "F8_E8M0", "C64", "f32", "F33", "")
     for n in (1, 2, 4, 8)]]
cases += [(b"{" + entry("x").encode().replace(b"x", bad) + b"}", 4)
          for bad in (b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xc3", b"\xf4\x90\x80\x80", b"\xc3\xa4")]
bases = [(("{" + metadata + "," + x + "," + y + "}").encode(), 8)]
for name in sorted(os.listdir(sys.argv[2])):
    with open(os.path.join(sys.argv[2], name), "rb") as f: # a line with the bytes of data, then the header
        nbytes, _, header = f.read().partition(b"\n")
    bases.append((header, int(nbytes)))
cases += bases[1:]
random.seed(7)
tokens = b'0123456789{}[],:"\\ -eE.+nulltruF\x00\xff\x80'
for i in range(2000):
    base, nbytes = bases[0] if i % 2 else random.choice(bases)
    header = bytearray(base)
    for _ in range(random.randint(1, min(3, len(base) - 1))):
        at = random.randrange(len(header))
        kind = random.randrange(3)
        if kind == 0:
            header[at] = random.choice(tokens)
        elif kind == 1:
            header.insert(at, random.choice(tokens))
        else:
            del header[at]
    cases.append((bytes(header), nbytes))
for i, (header, nbytes) in enumerate(cases):
    with open("%s/%04d" % (sys.argv[1], i), "wb") as f:
        f.write(struct.pack("<Q", len(header)) + header + bytes(nbytes))
END
tests/engine/test_safetensors $dir/odd/* > $dir/opened || exit 1
$python - $dir/opened <<'END'
import sys
from safetensors import safe_open

newer = (b'"F4"', b'"F6_E2M3"', b'"F8_E8M0"', b'"C64"') # unknown to old releases of the package
both = wrong = refused = 0
for line in open(sys.argv[1], encoding="utf-8", errors="replace"):
    path, verdict = line.rstrip("\n").split(" ", 1)
    try:
        with safe_open(path, framework="numpy") as f:
            f.keys()
        theirs = "accepted"
    except Exception as e:
        theirs = str(e)
    if verdict == "accepted" and theirs == "accepted":
        both += 1
    elif verdict == "accepted" and "unknown variant" in theirs and any(d in open(path, "rb").read() for d in newer):
        continue
    elif verdict == "accepted":
        wrong += 1
        print("we accept what safetensors refuses (%s): %r" % (theirs, open(path, "rb").read()))
    elif theirs == "accepted":
        refused += 1
# duplicate keys, zero bytes in names, tensors as arrays: ours is stricter
print("accepted by both: %d; by safetensors alone: %d" % (both, refused))
sys.exit(wrong > 0 or both < 50)
END
