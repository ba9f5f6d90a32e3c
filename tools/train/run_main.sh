#!/usr/bin/env bash
# OUT=DIR [FROM=DIR] tools/train/run_main.sh backbone SECONDS | again SECONDS | drafts SECONDS
#
# The runs that make folio-tiny, on all GPUs of the machine. `backbone` trains it from nothing with strong dropout, which
# teaches the language of dictionaries; `again` goes on at half the rate with little dropout, which teaches the entries by
# heart; `drafts` trains the draft stages on the frozen backbone of the run before. `again` and `drafts` start from the
# checkpoint in FROM, or else where the run before on the same machine ended. Into OUT go model/ and log.jsonl. Kernels
# compiled by an earlier run are taken from .cache/train/compiled.xz (an archive of /tmp/inductor).
set -euo pipefail
cd "$(dirname "$0")"
: "${OUT:?name a directory for the results}"
export PYTHONUNBUFFERED=1 TORCHINDUCTOR_CACHE_DIR=/tmp/inductor
data=../../.cache/train/data
compiled=../../.cache/train/compiled.xz
state=/tmp/folio-tiny-training
if [[ -f $compiled && ! -d /tmp/inductor ]]; then xz -dc "$compiled" | tar x -C /tmp; fi
gpus=$(python3 -c 'import torch; print(torch.cuda.device_count())')

train() {
  torchrun --standalone --nproc-per-node "$gpus" train.py "$@" --data "$data" --out "$state" 2>&1 |
    grep -E --line-buffered '^\{|compiled|differs|wrong|Error|line [0-9]+, in|memory'
  mkdir -p "$OUT"
  cp -r "$state/model" "$state/log.jsonl" "$OUT/"
}

resume=${FROM:-$state/state.pt}
case $1 in
  backbone) train backbone --check --seconds "$2" ;;
  again) train backbone --resume "$resume" --seed 2 --seconds "$2" --peak 0.5 --decay 1 --select-from 0 --dropout 0.02 ;;
  drafts) train drafts --resume "$resume" --seconds "$2" --log-every 100 ;;
  *) echo "unknown run '$1': backbone, again or drafts" >&2 && exit 2 ;;
esac
