# Makes the virtual environments of ./test, ./run and ./bench. Sourced by them; leaves the shell in the repository root.
# An environment is made once and then reused until pyproject.toml, the interpreter or the wanted packages change.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

find_python() {
    local candidate
    for candidate in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11}; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
    echo "livegrad needs Python 3.11 or newer; install it, or name it: PYTHON=/path/to/python3 $0" >&2
    return 1
}

# ensure_environment DIRECTORY REQUIREMENT...
ensure_environment() {
    local directory=$1 python wanted
    shift
    python=$(find_python)
    wanted=$("$python" -c '
import hashlib, pathlib, sys
parts = [sys.version, str(pathlib.Path.cwd()), pathlib.Path("pyproject.toml").read_text(), *sys.argv[1:]]
print(hashlib.sha256("\0".join(parts).encode()).hexdigest())' "$@")
    if [[ -f $directory/.stamp && $(<"$directory/.stamp") == "$wanted" ]]; then
        return
    fi
    echo "making $directory (once; later runs reuse it)" >&2
    if ! "$directory/bin/python" -m pip --version >/dev/null 2>&1; then
        "$python" -m venv --clear "$directory"
    fi
    "$directory/bin/python" -m pip install --quiet --disable-pip-version-check "$@"
    echo "$wanted" >"$directory/.stamp"
}

# JAX, PyTorch and Numba, which benchmarks and fuzzers compare with.
ensure_peers() {
    ensure_environment .venv-peers torch==2.13.0 jax numba 'numpy>=2' 'llvmlite>=0.45' scikit-image
}

ensure_development_environment() {
    ensure_environment .venv --editable '.[dev]'
    if [[ ! .venv/.mended -nt .venv/.stamp ]]; then  # newly installed
        .venv/bin/python scripts/opencl_driver.py
        touch .venv/.mended
    fi
}

# The page of the Studio, which is built again only when its sources change.
build_studio() {
    .venv/bin/python -m scripts.build_studio
}
