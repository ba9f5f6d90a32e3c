#!/usr/bin/env bash
# OUT=DIR tools/train/run_main.sh first SECONDS | second SECONDS DRAFT_SECONDS
#
# The two runs that make folio-tiny, on one machine one after the other, on all of its GPUs. `first` trains the backbone
# at a constant rate; `second` goes on with a falling rate and then trains the draft stages. Into OUT go model/ and
# log.jsonl. Kernels compiled by an earlier run are taken from .cache/train/compiled.xz (an archive of /tmp/inductor).
set -euo pipefail
cd "$(dirname "$0")"
: "${OUT:?name a directory for the results}"
export PYTHONUNBUFFERED=1 TORCHINDUCTOR_CACHE_DIR=/tmp/inductor
data=../../.cache/train/data
compiled=../../.cache/train/compiled.xz
if [[ -f $compiled && ! -d /tmp/inductor ]]; then xz -dc "$compiled" | tar x -C /tmp; fi
gpus=$(python3 -c 'import torch; print(torch.cuda.device_count())')

train() {
  torchrun --standalone --nproc-per-node "$gpus" train.py "$@" --data "$data" 2>&1 |
    grep -E --line-buffered '^\{|compiled|Error|line [0-9]+, in|memory'
}
keep() {
  rm -rf "$OUT/model"
  mkdir -p "$OUT"
  cp -r "$1/model" "$1/log.jsonl" "$OUT/"
}

case $1 in
  first)
    train backbone --check --seconds "$2" --decay 0.0001 --select-from 2 --out /tmp/first
    keep /tmp/first
    ;;
  second)
    train backbone --resume /tmp/first/state.pt --seed 2 --seconds "$2" --decay 1.4 --warmup 1 --select-from 0 --out /tmp/second
    keep /tmp/second
    train drafts --resume /tmp/second/state.pt --seconds "$3" --decay 0.6 --log-every 100 --out /tmp/third
    keep /tmp/third
    ;;
  *) echo "unknown run '$1': first or second" >&2 && exit 2 ;;
esac
