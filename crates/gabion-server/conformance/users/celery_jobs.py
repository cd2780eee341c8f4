"""Jobs of Celery, whose server is killed: it has the queue and the results.

    celery_jobs.py PORT COUNT KILL...

Celery gives a job again that nobody has acknowledged for as long as `visibility_timeout` says. But
a worker takes a job from the queue first, and notes then that it has it: what a worker was being
given when the server died is lost to Celery, with Redis as well. So who has asked asks again.
"""

import os
import sys

from celery import Celery

URL = os.environ.get("GABION_USERS_URL", "")

app = Celery("celery_jobs", broker=URL, backend=URL)
app.conf.update(
    broker_connection_max_retries=None,
    broker_connection_retry_on_startup=True,
    broker_transport_options={
        "visibility_timeout": 5,
        "unacked_restore_interval": 1,
        "unacked_restore_throttle": 1,
    },
    task_acks_late=True,
)


@app.task
def double(n):
    return 2 * n


def main():
    import jobs

    # Workers, and this module as they import it.
    os.environ["GABION_USERS_URL"] = jobs.URL
    import celery_jobs

    connection = jobs.connect()
    asked = []

    def ask():
        for n in range(jobs.COUNT):
            asked.append(celery_jobs.double.delay(n))

    def count_done():
        return sum(1 for _ in connection.scan_iter("celery-task-meta-*", count=1000))

    def give_again():
        left = [(n, job.id) for n, job in enumerate(asked) if not job.ready()]
        for n, name in left:
            celery_jobs.double.apply_async((n,), task_id=name)
        return len(left)

    def results():
        return [job.get(timeout=60) for job in asked]

    worker = [sys.executable, "-m", "celery", "--app", "celery_jobs", "--workdir"]
    worker += [os.path.dirname(os.path.abspath(__file__)), "worker", "--pool", "threads"]
    worker += ["--concurrency", "2", "--loglevel", "WARNING", "--hostname"]
    jobs.run("Celery", [*worker, "%n-%i"], ask, count_done, results, give_again)


if __name__ == "__main__":
    main()
