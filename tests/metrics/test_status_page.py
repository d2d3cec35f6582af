"""The status page in a browser: many partitions, keys, contrast, a phone."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from kafka_tx.errors import StateError
from kafka_tx.metrics import Endpoint, MetricsRegistry, serve
from kafka_tx.metrics.events import InFlight
from kafka_tx.model import LogBounds, TopicPartition
from kafka_tx.transactions.layout.commit_stats import TableWrite
from tests.chromium import chromium
from tests.metrics.facts import ORDERS_0, batch

pytestmark = pytest.mark.all

THERE = "postgresql://db/streams"
SNAPSHOT = "5837264758291037471"
MANY = [TopicPartition("orders", number) for number in range(5_000)]
DESK, PHONE = {"width": 1200, "height": 900}, {"width": 390, "height": 844}
LEAST_CONTRAST = 4.5  # of WCAG 2, level AA

LEAST_CONTRAST_OF_OUTLINES = 3.0  # of WCAG 2, level AA, for what is no text

_CONTRAST = """
  const parse = text => {
    const found = text.match(/[\\d.]+/g).map(Number);
    return [...found.slice(0, 3), found[3] ?? 1];
  };
  const linear = c => c <= .03928 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4;
  const light = ([r, g, b]) =>
    .2126 * linear(r / 255) + .7152 * linear(g / 255) + .0722 * linear(b / 255);
  const under = el => {
    for (; el; el = el.parentElement) {
      const colour = parse(getComputedStyle(el).backgroundColor);
      if (colour[3]) return colour;
    }
    return [255, 255, 255, 1];
  };
  const contrast = (first, second) => {
    const [a, b] = [light(first), light(second)];
    return (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
  };
"""
CONTRASTS = f"""() => {{{_CONTRAST}
  const isText = node => node.nodeType === 3 && node.textContent.trim();
  return [...document.querySelectorAll("body *")]
    .filter(el => [...el.childNodes].some(isText))
    .filter(el => el.checkVisibility() && !el.closest("svg"))
    .map(el => {{
      const colour = parse(getComputedStyle(el).color);
      return [contrast(colour, under(el)), el.textContent];
    }});
}}"""
FOCUS = f"""() => {{{_CONTRAST}
  const el = document.activeElement, style = getComputedStyle(el);
  const there = under(el.parentElement);
  const outline = parse(style.outlineColor);
  return [el.tagName, style.outlineWidth, style.outlineStyle, contrast(outline, there)];
}}"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def registry() -> MetricsRegistry:
    """A job with a batch in flight, a failed one, and one of 5,000 partitions."""
    made = MetricsRegistry()
    now_ms = time.time_ns() // 1_000_000
    for id_ in ("small", "large", "broken"):
        made.record_start(id_, "source", {"subscribe": "orders"})
    for txid in range(1, 20):
        changes: dict[str, Any] = {"committed_at_ms": now_ms - 1_000 * (20 - txid)}
        phases_ms = {"planning": 40, "processing": 250, "committing": 10}
        made.record_commit(batch(id="small", txid=txid, phases_ms=phases_ms, **changes))
    started = InFlight(
        number=20, phase="processing", since_ms=now_ms, phase_since_ms=now_ms
    )
    write = TableWrite(txid=19, table="sales.orders", sink="daily", version=SNAPSHOT)
    made.record_commit(batch(id="small", txid=19, tables=(write,)))
    made.record_in_flight("small", [started])
    made.record_commit(
        batch(
            id="large",
            starts=dict.fromkeys(MANY, 0),
            committed={p: 100 + p.partition for p in MANY},
            bounds={p: LogBounds(90, 200 + 2 * p.partition) for p in MANY},
        )
    )
    at_ms = now_ms + 60_000
    made.record_stop("broken", StateError("<b>the store</b> refuses"), at_ms)
    made.record_moved("broken", THERE)
    return made


@pytest.fixture(scope="module")
def endpoint(registry: MetricsRegistry) -> Iterator[Endpoint]:
    with serve(registry, port=0) as found:
        yield found


def opened(browser: Any, endpoint: Endpoint, **given: Any) -> Any:
    """A tab in which the page has shown all jobs; any error of its script fails."""
    tab = browser.new_page(**{"viewport": DESK, **given})
    complaints: list[str] = []
    tab.on("pageerror", lambda error: complaints.append(str(error)))
    tab.on("console", lambda said: complaints.append(said.text))
    tab.goto(f"http://127.0.0.1:{endpoint.port}/")
    tab.wait_for_selector(".job >> nth=2")
    assert complaints == []
    return tab


@pytest.fixture
def tab(browser: Any, endpoint: Endpoint) -> Iterator[Any]:
    found = opened(browser, endpoint)
    yield found
    found.close()


def job(tab: Any, id_: str) -> Any:
    return tab.locator(".job").filter(has=tab.locator(".name", has_text=id_))


def test_five_thousand_partitions_are_drawn_within_a_second(tab: Any) -> None:
    took_ms = min(
        tab.evaluate(
            """async () => {
              const began = performance.now();
              take(await (await fetch("api/status")).json());
              document.body.getBoundingClientRect();
              return performance.now() - began;
            }"""
        )
        for _ in range(3)
    )

    assert took_ms < 1_000
    assert "5,000 partitions of 1 topic" in job(tab, "large").inner_text()


def test_what_failed_stands_first_and_its_text_is_text(tab: Any) -> None:
    assert tab.locator(".name").all_inner_texts() == ["broken", "large", "small"]
    assert tab.locator("#sum").inner_text() == "1 failed, 2 running"
    assert "<b>the store</b> refuses" in job(tab, "broken").inner_text()
    assert f"· source · moved to {THERE}" in job(tab, "broken").inner_text()
    assert tab.title() == "✕ kafka_tx"


def test_batches_are_drawn_by_phase_with_the_one_in_flight(tab: Any) -> None:
    small = job(tab, "small")

    assert small.locator("rect.open.processing").count() == 1
    assert small.locator("rect.planning").count() == 19
    assert "In flight: txid 20: processing for" in small.inner_text()
    small.get_by_text("Last batches as a table").click()
    small.get_by_role("cell", name="committed").nth(18).wait_for()


def test_tables_are_shown_with_the_whole_number_of_their_snapshot(tab: Any) -> None:
    shown = job(tab, "small").inner_text()

    assert f"sales.orders (sink daily)\ntxid 19, version {SNAPSHOT}" in shown


def test_everything_is_reached_by_keys(tab: Any) -> None:
    focused = "document.activeElement.textContent"
    tab.keyboard.press("Tab")
    assert tab.evaluate(focused) == "Skip to the jobs"
    tab.keyboard.press("Tab")
    assert tab.evaluate(focused) == "Pause"
    tab.keyboard.press("Enter")
    tab.get_by_text("paused", exact=True).wait_for()
    tab.keyboard.press("Space")
    tab.get_by_text("paused", exact=True).wait_for(state="detached")
    tab.keyboard.press("Tab")
    broken = job(tab, "broken")
    assert broken.get_attribute("open") is not None
    tab.keyboard.press("Enter")
    assert broken.get_attribute("open") is None
    tab.keyboard.press("Space")
    assert broken.get_attribute("open") is not None

    cells = job(tab, "large").locator(".cells")
    cells.focus()
    tab.keyboard.press("ArrowRight")
    tab.keyboard.press("ArrowRight")

    assert "orders-1: lag 101," in job(tab, "large").inner_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_what_has_the_focus_is_outlined(
    browser: Any, endpoint: Endpoint, scheme: str
) -> None:
    tab = opened(browser, endpoint, color_scheme=scheme)
    seen = set()
    for _ in range(60):
        tab.keyboard.press("Tab")
        kind, width, style, contrast = tab.evaluate(FOCUS)
        if kind == "BODY":  # past the last one
            break
        assert (width, style) == ("2px", "solid"), kind
        assert contrast >= LEAST_CONTRAST_OF_OUTLINES, kind
        seen.add(kind)

    assert {"A", "BUTTON", "SUMMARY", "svg"} <= seen
    tab.close()


def test_a_partition_is_found_by_its_name(tab: Any) -> None:
    large = job(tab, "large")
    large.get_by_text("All partitions").click()
    large.locator("input").fill("orders-4711")

    row = large.locator("tbody").last.locator("tr")
    assert row.count() == 1
    assert row.inner_text().split("\t")[:2] == ["orders-4711", "4,811"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_has_enough_contrast(
    browser: Any, endpoint: Endpoint, scheme: str
) -> None:
    tab = opened(browser, endpoint, color_scheme=scheme)

    found = tab.evaluate(CONTRASTS)

    assert len(found) > 50
    assert [text for text in found if text[0] < LEAST_CONTRAST] == []
    tab.close()


def test_a_phone_shows_all_of_it_without_scrolling_sideways(
    browser: Any, endpoint: Endpoint
) -> None:
    tab = opened(browser, endpoint, viewport=PHONE)

    assert tab.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    tab.close()


def test_a_process_that_does_not_answer_is_told_and_what_was_seen_stays(
    browser: Any, registry: MetricsRegistry
) -> None:
    with serve(registry, port=0) as ending:
        tab = opened(browser, ending)
    tab.get_by_text("The process does not answer.").wait_for(timeout=15_000)

    assert job(tab, "small").count() == 1
    tab.close()


@pytest.mark.parametrize("viewport", [DESK, PHONE], ids=["desk", "phone"])
def test_records_that_are_lost_next_stand_first_in_title_order_and_card(
    browser: Any, viewport: dict[str, int]
) -> None:
    passed_ms = [0.0]
    made = MetricsRegistry(monotonic_ms=lambda: passed_ms[0])
    for id_ in ("broken", "near", "well"):
        made.record_start(id_, "source")
        made.record_commit(batch(id=id_))
    at_ms = time.time_ns() // 1_000_000 + 60_000
    made.record_stop("broken", StateError("refused"), at_ms)
    for _ in range(6):
        made.record_log("near", {ORDERS_0: LogBounds(50, 200, edge=150)})
        passed_ms[0] += 15_000
    with serve(made, port=0) as endpoint:
        page = opened(browser, endpoint, viewport=viewport)

        assert page.title() == "✕ near: 90 records from loss"
        assert page.locator(".name").all_inner_texts() == ["near", "broken", "well"]
        shown = job(page, "near").locator(".loss")
        assert shown.inner_text() == "90 records from loss"
        assert shown.is_visible()
        assert page.locator("#sum").inner_text() == "1 losing, 1 failed, 1 running"
        page.close()
