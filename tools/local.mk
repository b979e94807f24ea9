# SPDX-License-Identifier: BSD-3-Clause
#
# bin_PROGRAMS += shardrun
# shardrun_SOURCES = tools/shardrun.c
# shardrun_LDADD = $(SRT_LIB)
