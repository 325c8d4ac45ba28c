#!/bin/sh
# Usage: install_tool.sh v1
# VNN-COMP's first script: installs the tool and what it needs in .venv of this
# repository.  PYTHON names the interpreter that .venv is made with.
set -eu
[ "${1:-}" = v1 ] || { echo "install_tool.sh: version ${1:-missing}; only v1 is known" >&2; exit 2; }
cd "$(dirname "$0")/../.."
exec "${PYTHON:-python3}" scripts/setup_venv.py
