#!/usr/bin/env bash
# Ten minutes on a machine with one GPU: does SGLang hold what the recipes rely on?
#
# Starts it four times with dummy weights of a small model of Kimi's shape (MLA, routed experts) and a
# small DFlash drafter: plain, DFlash, HiCache, both. Each time: ready, tokens, cached tokens, eviction or the
# host tier, accept length, and an end by SIGTERM. Needs no network and no weights.
#
# Usage: gpu-check.sh [--python PATH] [--port N] [--keep FOLDER] [--dry-run]
#   --python   the interpreter that SGLang is installed for (default: that of python3)
#   --port     where the engine listens (default 31900)
#   --keep     keep configs, logs and answers there (default: a temporary folder)
#   --dry-run  print the commands, and let SGLang's own argument parser and checks judge them, on any machine
# Exit codes: 0 all held, 1 something did not, 2 a mistake in the command.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
resolver=$here/../replica/engines/sglang_resolver.py
python=python3 port=31900 folder='' dry_run=''
cases=(plain dflash hicache dflash-hicache)
start_s=150 end_s=40 all_s=${GPU_CHECK_S:-600}

mistake() {
  echo "gpu-check: $1 (gpu-check.sh --help)" >&2
  exit 2
}

while (($#)); do
  case $1 in
    --python | --port | --keep)
      (($# > 1)) || mistake "$1 needs a value"
      case $1 in
        --python) python=$2 ;;
        --port) port=$2 ;;
        --keep) folder=$2 ;;
      esac
      shift 2
      ;;
    --dry-run)
      dry_run=yes
      shift
      ;;
    -h | --help)
      sed -n '2,14p' "${BASH_SOURCE[0]}" | sed 's/^# \{0,1\}//'
      exit 0
      ;;
    *) mistake "unknown word $1" ;;
  esac
done
if [[ ! $port =~ ^[0-9]{1,5}$ ]] || ((port < 1 || port > 65535)); then
  mistake "--port $port is no port"
fi
command -v "$python" >/dev/null || mistake "--python $python: there is no such program"

pid=''
made=''
end_engine() { # the whole session, whatever is left of it
  if [[ -n $pid ]]; then
    kill -KILL -- "-$pid" 2>/dev/null || true
    pid=''
  fi
  if [[ -n $made ]]; then
    rm -rf -- "$made"
  fi
}
trap end_engine EXIT
trap 'exit 130' INT TERM HUP

if [[ -z $folder ]]; then
  made=$(mktemp -d)
  folder=$made
fi
mkdir -p -- "$folder"

flags_of() { # the words behind "sglang serve" of one case, one a line
  local words=(
    --model-path "$folder/target" --served-model-name gpu-check --load-format dummy
    --host 127.0.0.1 --port "$port" --random-seed 1 --page-size 64
    --mem-fraction-static 0.5 --max-total-tokens 32768 --max-running-requests 8 --context-length 16384
    --chunked-prefill-size 4096 --enable-metrics --enable-cache-report
  )
  if [[ $1 == *dflash* ]]; then
    words+=(
      --speculative-algorithm DFLASH --speculative-draft-model-path "$folder/draft"
      --speculative-draft-load-format dummy --speculative-num-draft-tokens 8
      --speculative-draft-attention-backend flashinfer
    )
  fi
  if [[ $1 == *hicache* ]]; then
    words+=(--enable-hierarchical-cache --hicache-size 4 --hicache-write-policy write_through)
  fi
  printf '%s\n' "${words[@]}"
}

judged() { # SGLang's own word on all cases, without a GPU
  "$python" -c 'import sglang' 2>/dev/null || {
    echo "SGLang is not installed for $python: its parser was not asked"
    return 0
  }
  for name in "${cases[@]}"; do
    flags_of "$name" >"$folder/$name.flags"
  done
  "$python" - "$folder" "${cases[@]}" <<'PY' | "$python" -P "$resolver" "$folder/answers.json" >"$folder/resolver.log" 2>&1
import json, pathlib, sys
gpu = {"capability": [10, 0], "memory_mib": 183_359}
words = [(pathlib.Path(sys.argv[1]) / f"{name}.flags").read_text().splitlines() for name in sys.argv[2:]]
print(json.dumps([{"argv": argv, "gpu": gpu} for argv in words]))
PY
  "$python" - "$folder" "${cases[@]}" <<'PY'
import json, pathlib, sys
rows = json.loads((pathlib.Path(sys.argv[1]) / "answers.json").read_text())
for name, row in zip(sys.argv[2:], rows, strict=True):
    why = "" if row["stage"] == "accepted" else f": {' '.join(str(row['error']).split())[:300]}"
    print(f"{name}: {row['stage']}{why}")
sys.exit(any(row["stage"] != "accepted" for row in rows))
PY
}

if [[ -n $dry_run ]]; then
  "$python" "$here/gpu/shapes.py" "$folder" --no-tokenizer
  for name in "${cases[@]}"; do
    mapfile -t flags < <(flags_of "$name")
    printf '%s: %s -m sglang.launch_server' "$name" "$python"
    printf ' %q' "${flags[@]}"
    echo
  done
  judged || exit 1
  exit 0
fi

command -v nvidia-smi >/dev/null || mistake "no nvidia-smi: is there a GPU? --dry-run needs none"
nvidia-smi --query-gpu=index,name,memory.total,memory.used,driver_version --format=csv,noheader
"$python" "$here/gpu/shapes.py" "$folder"

is_running() { kill -0 "$pid" 2>/dev/null; }

wait_ready() {
  local until=$((SECONDS + start_s))
  while ((SECONDS < until)); do
    is_running || return 1
    if "$python" - "http://127.0.0.1:$port/ready" 2>/dev/null <<'PY'; then
import sys, urllib.request
urllib.request.urlopen(sys.argv[1], timeout=2)
PY
      return 0
    fi
    sleep 1
  done
  return 1
}

check() { # one case; 0 if all of it held
  local name=$1 log=$folder/$1.log began=$SECONDS held=0 flags
  mapfile -t flags < <(flags_of "$name")
  echo "$name"
  setsid "$python" -m sglang.launch_server "${flags[@]}" >"$log" 2>&1 </dev/null &
  pid=$!
  if ! wait_ready; then
    echo "  FAILS  start: not ready after $((SECONDS - began)) s; its last lines:"
    tail -n 15 "$log" | sed 's/^/    | /'
    kill -KILL -- "-$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
    pid=''
    return 1
  fi
  echo "  holds  start: ready after $((SECONDS - began)) s"
  "$python" "$here/gpu/ask.py" "http://127.0.0.1:$port" "$name" "$folder" || held=1
  began=$SECONDS
  kill -TERM "$pid"
  while is_running && ((SECONDS - began < end_s)); do
    sleep 1
  done
  if is_running; then
    echo "  FAILS  end: still there $end_s s after SIGTERM"
    held=1
  else
    echo "  holds  end: gone $((SECONDS - began)) s after SIGTERM"
  fi
  kill -KILL -- "-$pid" 2>/dev/null || true
  wait "$pid" 2>/dev/null || true
  pid=''
  return "$held"
}

failed=()
for name in "${cases[@]}"; do
  if ((SECONDS + start_s > all_s)); then
    echo "$name: left out, $all_s s are nearly over"
    failed+=("$name (left out)")
    continue
  fi
  check "$name" || failed+=("$name")
done
if ((${#failed[@]})); then
  printf 'did not hold: %s\n' "$(IFS=,; echo "${failed[*]}")"
  exit 1
fi
echo "all held, after $SECONDS s"
