#!/bin/bash
# ./dev bench: training beside PyTorch, the collectives beside MPI and gloo, then the kernels.
# run.sh BUILD_FOLDER [ARGS of training.py]
set -euo pipefail
build=$1
shift
here=$(cd "$(dirname "$0")" && pwd)
text=$build/demo/bible.txt
"$here/../examples/train_lm/bible.sh" "${text%/*}"
export OMP_NUM_THREADS=1
python3 "$here/training.py" --train-lm "$build/bin/train_lm" --data "$text" "$@"

echo "the loss of a checkpoint, by train_lm and by PyTorch"
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
flags=(--data "$text" --seq 64 --batch 8)
for experts in 0 4; do
    mpiexec -n 2 "$build/bin/train_lm" "${flags[@]}" --experts $experts --steps 20 --dump-weights "$folder" --log "$folder/log" --quiet
    python3 "$here/../tests/reference/llama_mixtral.py" "$folder" "${flags[@]}" --step 20 --log "$folder/log"
done

python3 "$here/collectives.py" --bench "$build/bin/bench_collectives" --out "$build/bench"

for program in "$build"/bin/bench_kernels_*; do
    "$program" --benchmark_min_time=0.1s
done
