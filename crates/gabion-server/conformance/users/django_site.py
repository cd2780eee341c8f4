"""A site of Django with its sessions and its cache in the server, which is killed.

    django_site.py PORT COUNT KILL...

Visitors ask for a page that counts their visits in their session, and all visits in the cache.
"""

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import django
from django.conf import settings

PORT, COUNT, KILL = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
VISITORS = 4

settings.configure(
    ALLOWED_HOSTS=["*"],
    CACHES={
        "default": {
            "BACKEND": "django.core.cache.backends.redis.RedisCache",
            "LOCATION": f"redis://127.0.0.1:{PORT}",
        }
    },
    LOGGING_CONFIG=None,
    MIDDLEWARE=["django.contrib.sessions.middleware.SessionMiddleware"],
    ROOT_URLCONF=__name__,
    SECRET_KEY="quarry",
    SESSION_ENGINE="django.contrib.sessions.backends.cache",
)
django.setup()

from django.core.cache import cache  # noqa: E402
from django.http import HttpResponse  # noqa: E402
from django.test import Client  # noqa: E402
from django.urls import path  # noqa: E402


def page(request):
    visits = request.session.get("visits", 0) + 1
    request.session["visits"] = visits
    cache.incr("all")
    return HttpResponse(str(visits))


urlpatterns = [path("", page)]


class Visitor:
    """Who asks COUNT times, the second half of it after the kill."""

    def __init__(self, is_back):
        self.is_back = is_back
        self.answers = []
        self.attempts = 0

    def visit(self):
        client = Client(raise_request_exception=False)
        left = COUNT // VISITORS // 2
        while left:
            self.attempts += 1
            answer = client.get("/")
            if answer.status_code != 200:
                # The server is away: the page says so, and the visitor asks again.
                self.is_back.wait(0.02)
                continue
            self.answers.append(int(answer.content))
            left -= self.is_back.is_set()


def check(name, is_passed, words):
    print(f"{'passed' if is_passed else 'failed'} {name}: {words}")


def main():
    is_back = threading.Event()
    cache.set("all", 0, None)
    visitors = [Visitor(is_back) for _ in range(VISITORS)]
    with ThreadPoolExecutor(VISITORS) as threads:
        running = [threads.submit(visitor.visit) for visitor in visitors]
        try:
            while min(len(visitor.answers) for visitor in visitors) < COUNT // VISITORS // 2:
                is_back.wait(0.01)
            subprocess.run(KILL, check=True)
        finally:
            is_back.set()
        for visitor in running:
            visitor.result()
    answers = sum(len(visitor.answers) for visitor in visitors)
    attempts = sum(visitor.attempts for visitor in visitors)
    # A visit that failed may have been counted. One that was answered stays counted.
    forward = all(
        one < other
        for visitor in visitors
        for one, other in zip(visitor.answers, visitor.answers[1:])
    )
    highest = max(visitor.answers[-1] - visitor.attempts for visitor in visitors)
    check("sessions", forward and highest <= 0, f"visits of a visitor too many: {highest}")
    total = cache.get("all")
    check("cache", answers <= total <= attempts, f"{answers} <= {total} <= {attempts}")
    print(f"told {answers} pages of Django, 1 kill, {attempts - answers} pages in vain")


main()
