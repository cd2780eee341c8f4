"""Jobs of RQ, whose server is killed.

    rq_jobs.py PORT COUNT KILL...

A worker that loses its server while it notes the end of a job ends, and RQ then takes the job for
started until its time is over. So jobs that stand still are put into the queue again.
"""

import os
import sys


def double(n):
    return 2 * n


def main():
    import jobs
    from rq import Queue
    from rq.job import Job
    from rq.registry import FinishedJobRegistry

    connection = jobs.connect()
    queue = Queue("jobs", connection=connection)
    ids = []

    def ask():
        for n in range(jobs.COUNT):
            ids.append(queue.enqueue("rq_jobs.double", n, result_ttl=86400).id)

    def give_again():
        waiting = set(queue.job_ids)
        left = [job for job in fetch() if not job.is_finished and job.id not in waiting]
        for job in left:
            queue.enqueue_job(job)
        return len(left)

    def fetch():
        return Job.fetch_many(ids, connection=connection)

    def results():
        return [job.return_value() for job in fetch() if job.is_finished]

    # The worker finds this module beside it.
    os.environ["PYTHONPATH"] = os.path.dirname(os.path.abspath(__file__))
    rq = os.path.join(os.path.dirname(sys.executable), "rq")
    worker = [rq, "worker", "--url", jobs.URL, "--worker-class", "rq.SimpleWorker", "--quiet"]
    done = FinishedJobRegistry(queue=queue)
    jobs.run("RQ", [*worker, "jobs"], ask, lambda: done.count, results, give_again)


if __name__ == "__main__":
    main()
