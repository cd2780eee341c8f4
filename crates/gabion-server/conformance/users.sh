#!/usr/bin/env bash
# Tries programs that keep their state in Redis, as their registries have them, against the server,
# each through kills of the server by signal 9:
#
#   rq, celery   queues of jobs in Python: each job is done, and the sum of their results is exact
#   bullmq       the same in Node
#   asynq        the same in Go
#   django       sessions and the cache of a site: no answer goes back behind an older one
#   redlock      locks on three servers, of which each is killed: one holder at a time
#
#   crates/gabion-server/conformance/users.sh [PROGRAM [USER...]]
#
# PROGRAM is a program with the feature `server`, built anew if there is none; USER is one of the
# names above, by default each of them. Where a language is not installed its programs are left out
# aloud. `users` has what asks them for work.
#
# Prints a row for each: checks that passed and failed, and what was done. Fails if one failed.
# GABION_USERS_DIR keeps what is installed and the last output, target/users by default;
# GABION_USERS_COUNT is the number of jobs, requests and locks, 300 by default;
# GABION_TRIAL_SECONDS ends a program that takes longer, 300 by default.
set -euo pipefail
# shellcheck source=trials.bash
. "$(dirname "${BASH_SOURCE[0]}")/trials.bash"
work=${GABION_USERS_DIR:-$root/target/users}
declare -A versions=([rq]=2.12.0 [celery]=5.7.0 [bullmq]=6.7.0 [asynq]=0.26.0 [django]=5.2.8
    [redlock]=1.0.8)

python_user() { command=("$1/bin/python" "$here/users/$2"); }

prepare_rq() { python_packages "$1" "rq==$2"; }
command_rq() { python_user "$1" rq_jobs.py; }

prepare_celery() { python_packages "$1" "celery[redis]==$2"; }
command_celery() { python_user "$1" celery_jobs.py; }

prepare_bullmq() { node_packages "$1" "bullmq@$2" ioredis@6.0.0; }
command_bullmq() { command=(env "NODE_PATH=$1/node_modules" node "$here/users/bullmq_jobs.cjs"); }

prepare_asynq() {
    go_program "$1" "$here/users/asynq_jobs.go" "github.com/hibiken/asynq@v$2"
}
command_asynq() { command=("$1/main"); }

prepare_django() { python_packages "$1" "django==$2" redis==8.1.0; }
command_django() { python_user "$1" django_site.py; }

prepare_redlock() { python_packages "$1" "redlock-py==$2" redis==8.1.0; }
command_redlock() { python_user "$1" redlock_holders.py; }

find_program "${1:-}"
users=("${@:2}")
if [ ${#users[@]} -eq 0 ]; then
    users=(rq celery bullmq asynq django redlock)
fi
for user in "${users[@]}"; do
    servers=1
    if [ "$user" = redlock ]; then
        servers=3
    fi
    trial "$user" "${versions[$user]}" 2 "$servers" "${GABION_USERS_COUNT:-300}"
done
print_table
