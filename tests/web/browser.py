"""A real browser without a window: Debian's Chromium, driven through its own driver. Nothing is downloaded."""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.support import wait_until

WITHIN_S = 60.0
"""A busy machine takes its time; nobody waits longer than needed."""


def find_browser() -> tuple[str, str]:
    """Browser and driver; skips if they are not installed."""
    pytest.importorskip("selenium")
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if browser is None or driver is None:
        pytest.skip("no browser to test the pages with: install it with `apt install chromium chromium-driver`")
    return browser, driver


class Browser:
    """One window. `open` a page, look at it, and see what it asked for and complained about."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, url: str) -> None:
        self.driver.get(url)

    def size(self, wide: int, high: int, *, is_phone: bool = False) -> None:
        metrics = {"width": wide, "height": high, "deviceScaleFactor": 1, "mobile": is_phone}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def prefer(self, scheme: str) -> None:
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def all(self, selector: str) -> list[Any]:
        return list(self.driver.find_elements("css selector", selector))

    def one(self, selector: str) -> Any:
        return self.wait_until(
            lambda: next((each for each in self.all(selector) if each.is_displayed()), None), selector
        )

    def click(self, selector: str) -> None:
        """Click on an element that the page may replace at the same moment."""
        self.wait_until(lambda: self.one(selector).click() or True, selector)

    def choose(self, label: str, text: str) -> None:
        """Choose this from the list with this label."""
        for selector, beginning in ((".q-select", label), (".q-menu .q-item", text)):
            self.wait_until(
                lambda: [each.click() or True for each in self.all(selector) if each.text.startswith(beginning)],  # noqa: B023
                beginning,
            )

    def text(self, selector: str) -> str:
        return str(self.one(selector).text)

    def fabric(self, name: str) -> str:
        """What the drawing tells of itself."""
        return str(self.one(".bl-fabric").get_attribute(f"data-{name}") or "")

    def run(self, script: str, *args: Any) -> Any:
        return self.driver.execute_script(script, *args)

    def wait_until(self, condition: Callable[[], Any], what: str = "", within_s: float = WITHIN_S) -> Any:
        """Wait until this is true, and return it."""
        from selenium.common.exceptions import StaleElementReferenceException

        def found() -> Any:
            try:
                return condition()
            except StaleElementReferenceException:
                return None

        return wait_until(found, lambda: f"{self.page_text()}\n{what or condition}", within_s, poll_s=0.05)

    def page_text(self) -> str:
        return str(self.run("return document.body.innerText"))[:4000]

    def console_errors(self) -> list[str]:
        """Errors of the console since this was last asked."""
        return [each["message"] for each in self.driver.get_log("browser") if each["level"] == "SEVERE"]

    def hosts(self) -> set[str]:
        """All that was asked for something since this was last asked."""
        found = set()
        for entry in self.driver.get_log("performance"):
            event = json.loads(entry["message"])["message"]
            if event["method"] in ("Network.requestWillBeSent", "Network.webSocketCreated"):
                url = event["params"].get("url") or event["params"]["request"]["url"]
                if urlsplit(url).scheme not in ("data", "blob"):
                    found.add(urlsplit(url).netloc)
        return found


@contextmanager
def browsing() -> Iterator[Browser]:
    binary, driver_path = find_browser()
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1440,900"):
        options.add_argument(argument)
    options.binary_location = binary
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(driver_path))
    try:
        driver.set_script_timeout(WITHIN_S)
        yield Browser(driver)
    finally:
        driver.quit()
