"""What the queues of jobs in Python have in common: workers, kills of the server, the checks."""

import subprocess
import sys
import time

from redis import Redis
from redis.backoff import ConstantBackoff
from redis.exceptions import ConnectionError, TimeoutError
from redis.retry import Retry

PORT, COUNT, KILL = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
URL = f"redis://127.0.0.1:{PORT}/0"

# So long nothing is done before jobs that a worker has taken along are given to others.
PATIENCE = 15


def connect():
    """A connection that lives through a kill."""
    retry = Retry(ConstantBackoff(0.05), 200)
    return Redis(port=PORT, retry=retry, retry_on_error=[ConnectionError, TimeoutError])


def run(name, worker, ask, count_done, results, give_again):
    """Asks for jobs, starts two workers, kills the server twice while they work, and checks.

    `ask()` asks for the jobs 0 to COUNT - 1, of which each results in twice its number.
    `count_done()` tells how many are done; `results()` their results, one each; `give_again()` puts
    jobs into the queue again that a worker had taken when its server died.
    """
    ask()
    workers = [subprocess.Popen(worker) for _ in range(2)]
    kills, again, done, since, starts = 0, 0, 0, time.monotonic(), 0
    try:
        while (now := count_done()) < COUNT:
            if now > done:
                done, since = now, time.monotonic()
            if kills < 2 and done >= COUNT * (kills + 1) // 3:
                subprocess.run(KILL, check=True)
                kills += 1
            if time.monotonic() - since > PATIENCE:
                again += give_again()
                since = time.monotonic()
            # As whoever watches over services does.
            for index, process in enumerate(workers):
                if process.poll() is not None:
                    workers[index] = subprocess.Popen(worker)
                    starts += 1
            time.sleep(0.05)
    finally:
        for process in workers:
            process.kill()
            process.wait()
    found = results()
    print(f"{'passed' if kills == 2 else 'failed'} kills: {kills} were in time")
    is_exact = len(found) == COUNT and sum(found) == COUNT * (COUNT - 1)
    print(f"{'passed' if is_exact else 'failed'} sum: {len(found)} results, {sum(found)}")
    print(
        f"told {COUNT} jobs of {name}, {kills} kills, sum {sum(found)}, "
        f"{starts} workers started again, {again} jobs given again"
    )
