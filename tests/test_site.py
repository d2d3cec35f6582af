"""The site of the documentation, built as `make docs` does and read with a browser."""

import subprocess
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urldefrag, urljoin

import pytest

from tests.chromium import chromium
from tests.doc_pages import ROOT

pytestmark = pytest.mark.all  # 15 s on an idle machine

PHONE = {"width": 375, "height": 667}
DESK = {"width": 1280, "height": 800}
QUESTIONS = {
    "duplicates after restart": "questions",
    "delete checkpoint": "questions",
    "lag is wrong": "questions",
    "reprocess from the beginning": "questions",
    "rename tx.id": "questions",
    "two jobs with the same id": "questions",
    "how to install": "README",
    "exactly once into delta": "questions",
    "dead letter": "walkthroughs",
    "fenced": "how-it-works",
    "opaque or transactional": "how-it-works",
    "topic deleted": "runbook",
    "store does not answer": "runbook",
    "backup restore": "operate",
    "upgrade spark": "operate",
    "kubernetes": "kubernetes",
    "acl rights": "security",
    "coming from flink": "migrating",
    "write_transaction": "python-api",
    "KAFKA_TX_CHECKPOINT_DISAGREES": "errors",
    "maxOffsetsPerTrigger": "options",
    "json payload": "guides",
}
"""What people type, and the page that answers."""
TEXTS = "els => els.map(el => el.getAttribute('href'))"
NAMED = "els => els.map(el => el.id || el.name)"


class Quiet(SimpleHTTPRequestHandler):
    """Logs nothing."""

    def log_message(self, *args):
        """Nothing."""


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The folder of the site."""
    pytest.importorskip("furo", reason="the extra `docs` is not installed")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going"]
    places = ["-c", "docs", "-d", f"{folder}/trees", ".", f"{folder}/site"]
    built = subprocess.run(
        [*command, *places], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stderr
    return folder / "site"


@pytest.fixture(scope="module")
def site(built):
    """Its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(built)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def browser():
    """Chromium, without a window."""
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def visited(site, built, browser):
    """Every page as a phone has it: links, names, width; and all requests."""
    tab = browser.new_page(viewport=PHONE)
    asked = []
    tab.on("request", lambda request: asked.append(request.url))
    pages = {}
    for file in sorted({*built.rglob("*.html")} - {built / "index.html"}):
        address = site + file.relative_to(built).as_posix()
        tab.goto(address)
        pages[tab.url] = {
            "links": tab.eval_on_selector_all("a[href]", TEXTS),
            "names": {*tab.eval_on_selector_all("[id], a[name]", NAMED)},
            "width": tab.evaluate("document.documentElement.scrollWidth"),
        }
    tab.close()
    return pages, asked


def addresses(page, links):
    """Where links of a page lead to, as far as they stay on the site."""
    found = {urljoin(page, link) for link in links}
    return {link for link in found if link.startswith("http://127.0.0.1:")}


def test_every_page_is_there(visited, built):
    pages, _ = visited
    names = {Path(page).name for page in pages}
    assert names >= {"index.html", "guarantees.html", "python-api.html", "errors.html"}


def test_no_link_and_no_anchor_is_dead(visited, site, built):
    pages, _ = visited
    dead = []
    for page, found in pages.items():
        for link in addresses(page, found["links"]):
            target, anchor = urldefrag(link)
            file = built / target.removeprefix(site)
            known = pages.get(target)
            if not file.is_file() or (
                anchor and known and anchor not in known["names"]
            ):
                dead.append((page, link))
    assert not dead


def test_no_page_is_wider_than_a_phone(visited):
    pages, _ = visited
    wide = {page: found["width"] for page, found in pages.items()}
    assert not {page: w for page, w in wide.items() if w > PHONE["width"]}


def test_nothing_comes_from_outside(visited, site):
    _, asked = visited
    assert asked
    assert not [url for url in asked if not url.startswith((site, "data:"))]


def test_every_page_leads_back_to_the_index(visited, site):
    pages, _ = visited
    index = f"{site}docs/index.html"
    assert not [
        page
        for page, found in pages.items()
        if page != index
        and index
        not in {urldefrag(link)[0] for link in addresses(page, found["links"])}
    ]


def test_search_answers_on_its_first_screen(site, browser):
    tab = browser.new_page(viewport=DESK)
    missed = {
        question: found
        for question, page in QUESTIONS.items()
        if page not in (found := first_screen(tab, site, question))
    }
    tab.close()
    assert not missed


def first_screen(tab, site, question):
    """The names of the pages that a search shows first."""
    tab.goto(f"{site}search.html?q={question}")
    tab.wait_for_selector("#search-results .search-summary")
    tab.wait_for_function(
        "document.querySelector('#search-results h2').textContent === 'Search Results'"
    )
    shown = tab.eval_on_selector_all(
        "#search-results li > a",
        "(els) => els.filter(el => el.getBoundingClientRect().top < innerHeight)"
        ".map(el => el.getAttribute('href'))",
    )
    return [Path(urldefrag(link)[0]).stem for link in shown]
