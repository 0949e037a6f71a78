#!/bin/bash
# ./dev demo: trains a mixture-of-experts model of about a million parameters on the King James Bible, over a mesh with four
# axes above 1, and lets it write. Four axes of two are sixteen ranks; fewer could not have them.
# demo.sh BUILD_FOLDER [FLAGS]: flags of train_lm, in place of those here or beside them.
set -euo pipefail
build=$1
shift
text=$build/demo/bible.txt
"${BASH_SOURCE[0]%/*}/bible.sh" "${text%/*}"
# The entropy of single bytes: what a model that knows only how frequent each letter is would lose.
[[ " $* " != *" --help "* ]] || exec "$build/bin/train_lm" --help
entropy=$(od -An -v -tu1 -w1 "$text" | sort | uniq -c | awk '{ n += $1; s += $1 * log($1) } END { printf "%.2f", log(n) - s / n }')

defaults=(
    --mesh pp=2,ep=2,cp=2,tp=2 --sequence-parallel on --zero 1 --data "$text"
    --layers 4 --hidden 96 --heads 4 --kv-heads 2 --ffn 192 --experts 4
    --seq 128 --batch 16 --micro-batches 2 --steps 200 --lr 1e-3 --sample 200
)
flags=("$@" --zigzag --tie-embeddings)
for ((i = 0; i < ${#defaults[@]}; i += 2)); do # what the caller gives replaces the flag here
    [[ " $* " == *" ${defaults[i]} "* ]] || flags+=("${defaults[@]:i:2}")
done
mpiexec -n 16 "$build/bin/train_lm" "${flags[@]}"
cat <<END

A model that knows only how frequent each letter is would lose $entropy nats a byte.
Next: every flag:                                          ./dev demo --help
      another mesh:                                        ./dev demo --mesh dp=2,pp=2,cp=2,tp=2
      where the time goes (open in ui.perfetto.dev):       ./dev demo --steps 3 --trace trace.json
      the algebra behind it:                               README.md, docs/design.md
END
