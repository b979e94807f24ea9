/* SPDX-License-Identifier: BSD-3-Clause */
/* Descriptors 0 to 2 of a program. Called first in main() of every tool. */
#ifndef SRT_TOOLS_DESCRIPTORS_H
#define SRT_TOOLS_DESCRIPTORS_H

/**
 * Opens /dev/null as each of the standard input, output and error that is closed, as a daemon or a
 * container may start programs. Else the next files that the program opens would get these
 * descriptors, and its output with them.
 */
void tool_open_standard_files(void);

#endif
