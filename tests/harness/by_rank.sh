#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# by_rank.sh BACKEND+BACKEND... PROGRAM ARGUMENT...: runs the program on the backend of this rank; the
# last one is for all further ranks. Under shardrun: a job of several backends.
rest=$1
shift
rank=${SHARDRT_RANK:-0}
while [ "$rank" -gt 0 ] && [ "$rest" != "${rest#*+}" ]; do
	rest=${rest#*+}
	rank=$((rank - 1))
done
SHARDRT_BACKEND=${rest%%+*}
export SHARDRT_BACKEND
[ "$SHARDRT_BACKEND" != cpu ] || unset SHARDRT_DEVICE # names a device of another backend
exec "$@"
