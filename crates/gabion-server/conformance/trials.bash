# What clients.sh and users.sh have in common: they try programs of others against servers that are
# killed while the programs use them. Both source this file.
#
# A program is started as `COMMAND... PORTS COUNT KILL...`: the ports of its servers, with commas
# between them; how often it does its work; and the command that kills its first server by signal 9
# and starts it again. That ends with a directory whose last digit is the number of the server. The
# program prints `passed NAME` or `failed NAME: REASON` for each check, and may print `told WORDS`,
# which stand in its row.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../../.." && pwd)
# Modules that are imported leave nothing beside them.
export PYTHONDONTWRITEBYTECODE=1
run=
failures=0
rows=()

# Sets `program` to $1, or to a program that is built now.
find_program() {
    program=$1
    if [ -z "$program" ]; then
        (cd "$root" && cargo build --release --features server --locked --quiet)
        program=$root/target/release/gabion
    fi
    program=$(realpath "$program")
}

# Says what is missing if a tool is.
needs() {
    local tool
    for tool in "$@"; do
        command -v "$tool" > /dev/null || { echo "there is no $tool"; return 1; }
    done
}

# Makes the directory $1 an environment of Python with some packages.
python_packages() {
    needs python3 || return
    python3 -m venv "$1" && "$1/bin/pip" install --quiet --disable-pip-version-check "${@:2}"
}

# Installs packages of Node below the directory $1.
node_packages() {
    needs node npm || return
    npm install --prefix "$1" --ignore-scripts --no-audit --no-fund --silent "${@:2}"
}

# Builds the source $2 in the directory $1, with the module $3, as the program `main`.
go_program() {
    needs go || return
    cp "$2" "$1/main.go" && cd "$1" && rm -f go.mod go.sum &&
        go mod init main && go get "$3" && go mod tidy && go build -o main .
}

# Ends the servers of a run.
finish() {
    if [ -n "$run" ]; then
        local dir
        for dir in "$run"/[0-9]; do
            "$here/server" end "$dir" || failures=$((failures + 1))
        done
        rm -rf "$run"
        run=
    fi
}
trap finish EXIT

# Tries the program NAME in a VERSION, which has so many CHECKS, with so many SERVERS:
#
#   trial NAME VERSION CHECKS SERVERS COUNT
#
# `prepare_NAME DIR VERSION` installs it below DIR, or says why it cannot; `command_NAME DIR` sets
# `command` to the words that start it.
trial() {
    local name=$1 version=$2 checks=$3 servers=$4 count=$5
    local dir=$work/$name-$version log=$work/$name.log
    local command=() ports=() number status=0 passed failed told
    mkdir -p "$dir"
    if ! ("prepare_$name" "$dir" "$version") > "$dir/reason" 2>&1; then
        printf -- '--- left out: %s: %s\n' "$name" "$(tail -n 3 "$dir/reason")"
        return
    fi
    "command_$name" "$dir"
    run=$(mktemp -d)
    for number in $(seq "$servers"); do
        ports+=("$("$here/server" start "$run/$number" "$program" --appendfsync always)")
    done
    (
        IFS=,
        exec timeout "${GABION_TRIAL_SECONDS:-300}" "${command[@]}" "${ports[*]}" "$count" \
            "$here/server" kill "$run/1"
    ) > "$log" 2>&1 || status=$?
    finish
    passed=$(grep -c '^passed ' "$log" || true)
    # A program that ends early has failed in all that it does not tell.
    failed=$((checks - passed))
    if [ "$failed" -ne 0 ] || [ "$status" -ne 0 ]; then
        failures=$((failures + 1))
        echo "$name (status $status):"
        grep -vE '^(passed|told) ' "$log" | tail -n 30 | cut -c 1-400 || true
    fi
    told=$(sed -n 's/^told //p' "$log" | tail -n 1)
    rows+=("$(printf '%-10s %-8s %6d %6d  %s' "$name" "$version" "$passed" "$failed" "$told")")
}

# Prints the rows; fails if a program did.
print_table() {
    printf '%-10s %-8s %6s %6s\n' program version passed failed
    if [ ${#rows[@]} -gt 0 ]; then
        printf '%s\n' "${rows[@]}" | sed 's/ *$//'
    fi
    [ "$failures" -eq 0 ]
}
