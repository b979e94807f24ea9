#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# What we save is read by the format's own library, and what that saves is read by us.
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
    "a.last": ("float32", (1031,)),
}, shapes
save_file(tensors, sys.argv[2], metadata={"format": "np"})
END
run_ranks 2 tests/engine/test_checkpoint load $dir/theirs zero3
