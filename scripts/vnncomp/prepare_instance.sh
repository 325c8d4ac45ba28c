#!/bin/sh
# Usage: prepare_instance.sh v1 CATEGORY ONNX VNNLIB
# VNN-COMP's second script: ends what an earlier instance left, and reads the
# tool and the files once, so that the measured run finds them in memory.
# Exit status 1 says that the instance cannot be run.
set -u
[ "${1:-}" = v1 ] || { echo "prepare_instance.sh: version ${1:-missing}; only v1 is known" >&2; exit 2; }
[ $# -eq 4 ] || { echo "prepare_instance.sh: needs v1 CATEGORY ONNX VNNLIB" >&2; exit 2; }
tool=$(dirname "$0")/../../.venv/bin/ranum-falsify

pkill -f "$tool" 2> /dev/null
for file in "$tool" "$3" "$4"; do
    [ -r "$file" ] || { echo "prepare_instance.sh: $file: no such file" >&2; exit 1; }
    cat "$file" > /dev/null
done
# The libraries and the kernels' self-check, which is kept for the machine.
"$tool" doctor > /dev/null 2>&1 || true
