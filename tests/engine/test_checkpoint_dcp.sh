#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# PyTorch's torch.distributed.checkpoint reads the files of sharded checkpoints: rows, ranges of elements and blocks,
# which are several boxes, give the tensors of the file of unsharded ones. Those of shardrt-ckpt reshard, too.
. "$srcdir/tests/harness/run_ranks.sh"
[ -x tests/engine/test_checkpoint_sharded ] || skip "sharded checkpoints need jansson and libxxhash"
python=${PYTHON:-python3}
$python -c 'import safetensors.torch
from torch.distributed.checkpoint import HuggingFaceStorageReader' 2> /dev/null ||
	skip "no Python with torch and safetensors (PYTHON names another one)"
most_ranks=4
SHARDRT_THREADS=1
export SHARDRT_THREADS
dir=tests/engine/test_checkpoint_dcp.dir
rm -rf $dir
mkdir -p $dir || exit 1
trap 'rm -rf $dir' EXIT

for save in 1-ddp 3-zero3 3-views 4-tp-views; do
	run_ranks "${save%%-*}" tests/engine/test_checkpoint_sharded save $dir/$save "${save#*-}" $dir/$save.safetensors
done
cmp $dir/1-ddp.safetensors $dir/4-tp-views.safetensors || exit 1
./shardrt-ckpt reshard --ranks 3 $dir/4-tp-views $dir/resharded || exit 1
$python - $dir <<'END' || exit 1
import os, sys
import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file

folder = sys.argv[1]
whole = load_file(os.path.join(folder, "1-ddp.safetensors"))
whole = {name: t for name, t in whole.items() if t.numel() > 0}  # empty tensors are in no file
assert len(whole) > 10
for save in sorted(os.listdir(folder)):
    path = os.path.join(folder, save)
    if not os.path.isdir(path):
        continue
    state = {name: torch.full_like(t, -1) for name, t in whole.items()}
    moment = "optimizer.state0.b0.weight"
    state[moment] = torch.full_like(whole["b0.weight"], -1)
    dcp.load(state, storage_reader=dcp.HuggingFaceStorageReader(path), no_dist=True)
    for name, t in whole.items():
        if name != "b0.mean" and name != "b0.count":
            assert torch.equal(state[name], t), (save, name)
    assert state[moment].abs().min() < 1 and not torch.equal(state[moment], whole["b0.weight"]), save
    print(save, "is read by torch", torch.__version__)
END
