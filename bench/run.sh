#!/bin/bash
# ./dev bench [SECTION...]: run.sh BUILD_FOLDER [SECTION...]; all sections if none is named.
set -euo pipefail
build=$1
shift
here=$(cd "$(dirname "$0")" && pwd)
text=$build/demo/bible.txt
export OMP_NUM_THREADS=1
for variable in $(python3 "$here/library_kernels.py" --variables); do unset "$variable"; done

training() { # beside PyTorch
    python3 "$here/training.py" --train-lm "$build/bin/train_lm" --data "$text"
}
recomputation() { # its time, within half of the memory of activations
    python3 "$here/recomputation.py" --train-lm "$build/bin/train_lm" --pentad-plan "$build/bin/pentad_plan" --data "$text"
}
precision() { # what fewer bits cost and save
    python3 "$here/precision.py" --train-lm "$build/bin/train_lm" --data "$text"
}
offload() { # optimizer state and activations in files, beside what the disk does
    local what
    for what in optimizer activations; do
        python3 "$here/offload.py" --train-lm "$build/bin/train_lm" --data "$text" --folder "$build" --what $what
    done
}
checkpoint() { # its loss, by train_lm and by PyTorch
    local folder experts flags=(--data "$text" --seq 64 --batch 8)
    folder=$(mktemp -d)
    trap 'rm -r "$folder"' RETURN
    for experts in 0 4; do
        mpiexec -n 2 "$build/bin/train_lm" "${flags[@]}" --experts $experts --steps 20 --dump-weights "$folder" --log "$folder/log" --quiet
        python3 "$here/../tests/reference/llama_mixtral.py" "$folder" "${flags[@]}" --step 20 --log "$folder/log"
    done
}
checkpoints() { # saved and loaded, beside torch.distributed.checkpoint
    python3 "$here/checkpoints.py" --bench "$build/bin/bench_checkpoints"
}
collectives() { # beside the MPI library and gloo
    python3 "$here/collectives.py" --bench "$build/bin/bench_collectives" --out "$build/bench"
}
transposes() { # of an FFT on pencils, beside the same by hand with MPI
    local n
    for n in 128 256; do
        mpiexec -n 2 "$build/bin/bench_transposes" 1 2 $n
        mpiexec -n 2 "$build/bin/bench_transposes" 2 1 $n
        mpiexec -n 4 "$build/bin/bench_transposes" 2 2 $n
    done
}
network() { # across hosts that a lab makes
    "$here/lab/network.py" --bench "$build/bin/bench_network" --experts "$build/bin/bench_experts_network"
    "$here/lab/overlap.py" --bench "$build/bin/bench_overlap"
    "$here/lab/sharding.py" --train-lm "$build/bin/train_lm"
    "$here/lab/pairs.py" --train-lm "$build/bin/train_lm"
    "$here/lab/context.py" --bench "$build/bin/bench_context"
    "$here/lab/halo.py" --bench "$build/bin/bench_halo"
    mkdir -p "$build/bench"
    "$here/lab/timeline.py" --train-lm "$build/bin/train_lm" --out "$build/bench/timeline.svg"
}
pipeline() { # schedules, as they run and as they are simulated
    mpiexec -n 2 "$build/bin/bench_pipeline"
    mpiexec -n 4 "$build/bin/bench_pipeline" --sleep
}
kernels() {
    local program
    for program in "$build"/bin/bench_kernels_*; do "$program" --benchmark_min_time=0.1s; done
}

attention() { # beside PyTorch
    python3 "$here/attention.py" --bench "$build/bin/bench_kernels_gemm_attention"
}
mixers() { # Mamba-2 and linear attention beside transformers
    python3 "$here/mixers.py" --bench "$build/bin/bench_mixers"
}
experts() { # beside transformers, and on 2 ranks
    python3 "$here/experts.py" --bench "$build/bin/bench_experts"
}
products() { # of matrices, beside ScaLAPACK
    local grid element n
    for element in f64 f32; do
        for n in 2048 4096; do
            for grid in "1 1" "1 2" "2 2"; do
                mpiexec -n $((${grid% *} * ${grid#* })) "$build/bin/bench_products" $grid $n 3 $element
            done
        done
    done
}

sections=(training recomputation precision offload checkpoint checkpoints collectives transposes network pipeline kernels attention mixers experts products)
(($#)) || set -- "${sections[@]}"
for section; do
    [[ " ${sections[*]} " == *" $section "* ]] || { echo "bench: there is no section '$section': ${sections[*]}" >&2 && exit 1; }
done
"$here/../examples/train_lm/bible.sh" "${text%/*}"
python3 "$here/library_kernels.py" "$build/bin"
for section; do
    echo "== $section"
    "$section"
done
