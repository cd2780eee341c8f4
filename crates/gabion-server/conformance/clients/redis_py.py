"""What programs do with redis-py, and a kill of the server in the middle.

    redis_py.py PORT COUNT KILL...

KILL is the command that kills the server and starts it again. Prints a line for each check.
"""

import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import redis

PORT, COUNT, KILL = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
LOST = (redis.ConnectionError, redis.TimeoutError)
PATIENCE = 60

pool = redis.BlockingConnectionPool(
    host="127.0.0.1", port=PORT, decode_responses=True, max_connections=12, timeout=PATIENCE
)
client = redis.Redis(connection_pool=pool)


def same(found, expected):
    if found != expected:
        raise AssertionError(f"{found!r} in place of {expected!r}")


def together(*jobs):
    """Runs jobs side by side. The first failure is the caller's."""
    with ThreadPoolExecutor(len(jobs)) as threads:
        for job in [threads.submit(job) for job in jobs]:
            job.result()


def check_pool():
    def use(worker):
        for number in range(COUNT):
            client.set(f"{worker}:{number}", number)
            same(client.get(f"{worker}:{number}"), str(number))
            client.incr("all")

    together(*[lambda worker=worker: use(worker) for worker in range(20)])
    same(client.get("all"), str(20 * COUNT))


def check_pipeline():
    pipeline = client.pipeline(transaction=False)
    for number in range(COUNT):
        pipeline.set(f"key:{number}", number).incr("sum").hset("hash", f"f{number}", number)
    pipeline.lpop("sum")
    replies = pipeline.execute(raise_on_error=False)
    expected = [reply for number in range(COUNT) for reply in (True, number + 1, 1)]
    same(replies[:-1], expected)
    same(isinstance(replies[-1], redis.ResponseError), True)
    same(client.hlen("hash"), COUNT)


def check_transaction():
    client.mset({"a": 1000, "b": 1000})

    def move():
        for _ in range(COUNT):
            with client.pipeline(transaction=True) as pipeline:
                pipeline.decr("a").incr("b").execute()

    def look():
        for _ in range(COUNT):
            same(sum(map(int, client.mget("a", "b"))), 2000)

    together(move, move, look)
    same(client.mget("a", "b"), [str(1000 - 2 * COUNT), str(1000 + 2 * COUNT)])


def check_watch():
    client.set("n", 0)
    conflicts = []

    def add():
        for _ in range(COUNT):
            while True:
                with client.pipeline() as pipeline:
                    try:
                        pipeline.watch("n")
                        found = int(pipeline.get("n"))
                        pipeline.multi()
                        pipeline.set("n", found + 1)
                        pipeline.execute()
                        break
                    except redis.WatchError:
                        conflicts.append(found)

    together(add, add, add)
    same(client.get("n"), str(3 * COUNT))
    with client.pipeline() as pipeline:
        pipeline.watch("n")
        client.set("n", "changed")
        pipeline.multi()
        pipeline.set("n", "overwritten")
        try:
            pipeline.execute()
            raise AssertionError("a change of a watched key was not noticed")
        except redis.WatchError:
            pass
    same(client.get("n"), "changed")


def check_messages():
    with client.pubsub(ignore_subscribe_messages=True) as listener:
        listener.subscribe("news")
        listener.psubscribe("new?")
        while client.pubsub_numsub("news")[0][1] < 1 or client.pubsub_numpat() < 1:
            listener.get_message(timeout=0.01)
        for number in range(COUNT):
            same(client.publish("news", number), 2)
        found = []
        while len(found) < 2 * COUNT:
            message = listener.get_message(timeout=PATIENCE)
            if message is not None:
                found.append((message["type"], message["data"]))
    for kind in ("message", "pmessage"):
        same([data for of, data in found if of == kind], [str(n) for n in range(COUNT)])


def check_scripts():
    same(client.eval("return {KEYS[1], ARGV[1], #ARGV}", 1, "k", "a", "b"), ["k", "a", 2])
    try:
        client.evalsha("0" * 40, 0)
        raise AssertionError("an unknown script was run")
    except redis.exceptions.NoScriptError:
        pass
    script = client.register_script(
        "local n = redis.call('INCR', KEYS[1]) redis.call('RPUSH', KEYS[2], n) return n"
    )
    together(*[lambda: [script(keys=["n", "list"]) for _ in range(COUNT)]] * 3)
    same(client.lrange("list", 0, -1), [str(n + 1) for n in range(3 * COUNT)])
    try:
        client.eval("return redis.call('LPOP', KEYS[1])", 1, "n")
        raise AssertionError("an error of a script was not told")
    except redis.ResponseError as error:
        same("WRONGTYPE" in str(error), True)


def check_blocking():
    same(client.blpop("queue", timeout=0.05), None)
    found = []

    def take():
        while (item := client.blpop(["first", "queue"], timeout=PATIENCE)[1]) != "end":
            found.append(int(item))

    def give():
        for number in range(COUNT):
            client.rpush("queue", number)
        client.rpush("queue", "end", "end")

    together(take, take, give)
    same(sorted(found), list(range(COUNT)))
    move = lambda: same(client.blmove("from", "to", PATIENCE, "LEFT", "RIGHT"), "x")
    together(move, lambda: client.rpush("from", "x"))
    least = lambda: same(client.bzpopmin("scores", PATIENCE), ("scores", "m", 1.5))
    together(least, lambda: client.zadd("scores", {"m": 1.5}))


def check_stream():
    client.xgroup_create("stream", "group", id="0", mkstream=True)
    for number in range(COUNT):
        client.xadd("stream", {"number": number})
    found = []

    def consume(name):
        while len(found) < COUNT:
            read = client.xreadgroup("group", name, {"stream": ">"}, count=7, block=50)
            for entry, fields in read[0][1] if read else []:
                found.append(int(fields["number"]))
                if int(fields["number"]) % 10:
                    same(client.xack("stream", "group", entry), 1)

    together(lambda: consume("one"), lambda: consume("two"))
    same(sorted(found), list(range(COUNT)))
    same(client.xpending("stream", "group")["pending"], -(-COUNT // 10))
    claimed = client.xautoclaim("stream", "group", "three", 0, count=COUNT)
    same(len(claimed[1]), -(-COUNT // 10))
    same(client.xpending("stream", "group")["consumers"][0]["name"], "three")


def check_expiry():
    client.set("soon", 1, px=50)
    client.set("later", 1, ex=1000)
    client.hset("hash", mapping={"soon": 1, "later": 1})
    same(client.hpexpire("hash", 50, "soon"), [1])
    same(990 < client.ttl("later") <= 1000, True)
    same(client.getex("later", persist=True), "1")
    same(client.ttl("later"), -1)
    end = time.monotonic() + PATIENCE
    while client.exists("soon") or client.hlen("hash") > 1:
        same(time.monotonic() < end, True)
        time.sleep(0.01)
    same(client.hgetall("hash"), {"later": "1"})
    same(client.ttl("soon"), -2)


class Kill:
    """Writers, a consumer and a subscriber while the server is killed and started again."""

    def __init__(self):
        self.is_back = threading.Event()
        self.acknowledged = {kind: [] for kind in ("key", "pipeline", "pair", "script", "entry")}
        self.attempts = {}
        self.taken = []
        self.heard = []
        self.script = client.register_script(
            "redis.call('SET', KEYS[1], ARGV[1]) redis.call('SET', KEYS[2], ARGV[1])"
        )

    def run(self):
        client.flushall()
        writers = [lambda kind=kind: self.write(kind) for kind in self.acknowledged]
        together(self.kill, self.consume, self.listen, *writers)

    def kill(self):
        end = time.monotonic() + PATIENCE
        while min(map(len, self.acknowledged.values())) < COUNT and time.monotonic() < end:
            time.sleep(0.01)
        try:
            subprocess.run(KILL, check=True)
        finally:
            self.is_back.set()
        client.rpush("queue", "after")
        while not self.heard and time.monotonic() < end:
            client.publish("news", "after")
            time.sleep(0.01)

    def write(self, kind):
        attempt, left = 0, COUNT
        while left:
            attempt += 1
            self.attempts[kind] = attempt
            try:
                self.write_once(kind, attempt)
            except LOST:
                time.sleep(0.01)
                continue
            self.acknowledged[kind].append(attempt)
            left -= self.is_back.is_set()

    def write_once(self, kind, n):
        one, other = f"{kind}:{n}:a", f"{kind}:{n}:b"
        if kind == "key":
            client.set(one, n)
            client.set(other, n)
        elif kind == "script":
            self.script(keys=[one, other], args=[n])
        elif kind == "entry":
            client.xadd("entries", {"n": n})
        else:
            pipeline = client.pipeline(transaction=kind == "pair")
            pipeline.set(one, n).set(other, n).execute()

    def consume(self):
        end = time.monotonic() + PATIENCE
        while not self.taken and time.monotonic() < end:
            try:
                if (found := client.blpop("queue", timeout=5)) is not None:
                    self.taken.append(found[1])
            except LOST:
                time.sleep(0.01)

    def listen(self):
        end = time.monotonic() + PATIENCE
        with client.pubsub(ignore_subscribe_messages=True) as listener:
            listener.subscribe("news")
            while not self.heard and time.monotonic() < end:
                try:
                    if (message := listener.get_message(timeout=0.1)) is not None:
                        self.heard.append(message["data"])
                except LOST:
                    time.sleep(0.01)


kill = Kill()


def check_kill():
    kill.run()


def check_kill_keeps_acknowledged():
    entries = {int(fields["n"]) for _, fields in client.xrange("entries")}
    for kind, acknowledged in kill.acknowledged.items():
        same(len(acknowledged) >= 2 * COUNT, True)
        for n in acknowledged:
            if kind == "entry":
                same(n in entries, True)
            else:
                same(client.mget(f"{kind}:{n}:a", f"{kind}:{n}:b"), [str(n)] * 2)


def check_kill_leaves_wholes():
    for kind in ("pair", "script"):
        for n in range(1, kill.attempts[kind] + 1):
            one, other = client.mget(f"{kind}:{n}:a", f"{kind}:{n}:b")
            same(one, other)


def check_kill_and_a_blocked_consumer():
    same(kill.taken, ["after"])


def check_kill_and_a_subscriber():
    same(kill.heard[:1], ["after"])


def main():
    checks = [(name, check) for name, check in globals().items() if name.startswith("check_")]
    for name, check in checks:
        name = name.removeprefix("check_").replace("_", " ")
        if not name.startswith("kill"):
            client.flushall()
        try:
            check()
            print("passed", name, flush=True)
        except Exception as error:
            print(f"failed {name}: {error!r}"[:300], flush=True)


main()
