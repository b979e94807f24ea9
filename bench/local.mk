# SPDX-License-Identifier: BSD-3-Clause
EXTRA_DIST += bench/peer_torch.py bench/quality.sh
