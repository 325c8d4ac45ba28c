#!/bin/sh
# Usage: run_instance.sh v1 CATEGORY ONNX VNNLIB RESULTS TIMEOUT
# VNN-COMP's third script: decides an instance within TIMEOUT seconds.  RESULTS
# gets `sat` with the counterexample, `unsat`, `timeout`, `unknown` or `error`.
set -u
[ "${1:-}" = v1 ] || { echo "run_instance.sh: version ${1:-missing}; only v1 is known" >&2; exit 2; }
[ $# -eq 6 ] || { echo "run_instance.sh: needs v1 CATEGORY ONNX VNNLIB RESULTS TIMEOUT" >&2; exit 2; }
onnx=$3 property=$4 results=$5 seconds=$6
tool=$(dirname "$0")/../../.venv/bin/ranum-falsify

folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
# Start and end take about a second of the time that the run has.
limit=$(awk "BEGIN { print ($seconds > 4) ? $seconds - 2 : $seconds / 2 }")
said=$("$tool" "$property" --vnnlib --network N "$onnx" --timeout "$limit" --n_starts -1 -q \
    --save-violation "$folder/cex.vnnlib.txt")
case $? in
    0) echo unsat ;;
    1) if [ -s "$folder/cex.vnnlib.txt" ]; then echo sat && cat "$folder/cex.vnnlib.txt"; else echo error; fi ;;
    3) case $said in *timeout*) echo timeout ;; *) echo unknown ;; esac ;;
    *) echo error ;;
esac > "$folder/results"
mv "$folder/results" "$results"
