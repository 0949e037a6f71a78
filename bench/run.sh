#!/bin/bash
# ./dev bench: training beside PyTorch, then the kernels. run.sh BUILD_FOLDER [ARGS of training.py]
set -euo pipefail
build=$1
shift
here=$(cd "$(dirname "$0")" && pwd)
text=$build/demo/bible.txt
if [[ ! -s $text ]]; then
    mkdir -p "${text%/*}"
    bible -f gen1:1-rev22:21 | sed 's/^[^ ]* //' >"$text.new"
    mv "$text.new" "$text"
fi
export OMP_NUM_THREADS=1
python3 "$here/training.py" --train-lm "$build/bin/train_lm" --data "$text" "$@"
for program in "$build"/bin/bench_*; do
    "$program" --benchmark_min_time=0.1s
done
