# SPDX-License-Identifier: BSD-3-Clause
#
# Substitutes for the commands of README.md, which tests/tools/test_readme.sh runs: a script for sed -E. A command that
# becomes "elsewhere: ..." is run by what is named there; a line that becomes "output" is no command.

# Runs of minutes, on a whole clone.
s/^git clone .*/elsewhere: .ci\/run begins with a clone/
s/^\.\/quickstart.*/elsewhere: phase gcc of .ci\/run runs .\/quickstart check/
s/^autoreconf .*/elsewhere: phases asan and dist of .ci\/run/

# What ./quickstart prints.
s/^(installing|generating|configuring|building|text:|measuring|GPT of|2 ranks|step|\.\.\.|saved).*/output/

# The texts of a user, and where the library was installed; an example of four hours is two steps of a small model.
s/FILE/text.txt/
s/--preset char/--preset nano/
/--restarts/s/DIR/restarted/
s/(--checkpoint|--init|verify|hash|merge) DIR/\1 checkpoints/
/--tokenizer/s/FOLDER/tokenizer.json/
s/FOLDER/huggingface/g
s/(PKG_CONFIG_PATH=|rpath,)DIR/\1installed/
s/--steps [0-9]+/--steps 2/
/--steps/!s/--(text|tokens) [^ ]+/& --steps 2 --eval-every 0/
s/--generate 500/--generate 20/
s/--bench/& --seconds 1/
