"""A headless Chromium that reaches nothing but this machine, for tests of pages."""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.actions.action_builder import ActionBuilder
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from tests.support.waiting import WAIT_S_MAX

_POLL_S = 0.02
_NEAR = 24  # of 255

_VIEW = (
    "const view = Array.from(Bokeh.index.roots).find((one) => one.model.name === arguments[0]);"
    "const x = (at) => view.frame.bbox.x + view.frame.x_scale.compute(at) - view.frame.x_scale"
    ".compute(view.frame.x_range.start);"
    "const y = (at) => view.frame.bbox.y + view.frame.y_scale.compute(at) - view.frame.y_scale"
    ".compute(view.frame.y_range.end);"
)
# Bokeh puts tooltips into shadow trees.
_TIP = """
const texts = (root) => Array.from(root.querySelectorAll("*")).flatMap((one) => [
  ...(one.classList.contains("tip") && one.getBoundingClientRect().width ? [one.innerText] : []),
  ...(one.shadowRoot ? texts(one.shadowRoot) : []),
]);
return texts(document).join(" | ")
"""


class Page:
    def __init__(self, driver: Chrome) -> None:
        self.driver = driver

    def clear(self) -> None:
        """Leave the page, and clear the logs of the console and the network."""
        self.driver.get("about:blank")
        self.complaints()
        self.requests()

    def wait_for(self, check: Callable[[], Any], what: str) -> Any:  # noqa: ANN401 - as `check`
        return WebDriverWait(self.driver, WAIT_S_MAX, _POLL_S).until(lambda _: check(), what)

    def open(self, page: Path | str) -> None:
        """Open a file or URL, and wait until all figures are drawn."""
        self.driver.get(page if isinstance(page, str) else page.as_uri())
        is_drawn = (
            "return window.Bokeh !== undefined && Bokeh.documents.length > 0"
            " && Bokeh.documents.every((one) => one.is_idle)"
        )
        self.wait_for(lambda: self.run(is_drawn), "all figures")

    def cpu_s(self) -> float:
        """Return the processor time of the main thread: busy neighbours do not prolong it."""
        metrics = self.driver.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
        return float(next(one["value"] for one in metrics if one["name"] == "TaskDuration"))

    def prefer(self, scheme: str) -> None:
        """Let the reader prefer a colour scheme: "light" or "dark"."""
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})

    def resize(self, width: int) -> None:
        """Give the window another width, in pixels; 0 for its own."""
        size = {"width": width, "height": 900 * bool(width), "deviceScaleFactor": 0}
        command = "Emulation.setDeviceMetricsOverride"
        self.driver.execute_cdp_cmd(command, {**size, "mobile": False})

    def run(self, script: str, *arguments: object) -> Any:  # noqa: ANN401 - what the script gives
        return self.driver.execute_script(script, *arguments)

    def column(self, source: str, column: str) -> list[Any]:
        script = "return Array.from(page.model(arguments[0]).data[arguments[1]])"
        found: list[Any] = self.run(script, source, column)
        return found

    def place(self, figure: str, at_s: float, value: float) -> tuple[float, float]:
        """Return the position of a figure's point on its canvas, in pixels from the upper left."""
        x, y = self.run(f"{_VIEW} return [x(arguments[1]), y(arguments[2])]", figure, at_s, value)
        return float(x), float(y)

    def colour(self, figure: str, at_s: float, value: float) -> str:
        """Return the colour of a point of a figure, as "#rrggbb"."""
        # Read from a copy: the browser warns about reads from a canvas that is drawn to.
        script = (
            f"{_VIEW} const canvas = view.canvas_view.primary.canvas;"
            "const copy = new OffscreenCanvas(1, 1).getContext('2d', {willReadFrequently: true});"
            "const ratio = canvas.width / view.el.getBoundingClientRect().width;"
            "copy.drawImage(canvas, -Math.floor(x(arguments[1]) * ratio),"
            " -Math.floor(y(arguments[2]) * ratio));"
            "return Array.from(copy.getImageData(0, 0, 1, 1).data).slice(0, 3)"
        )
        return "#" + "".join(f"{part:02x}" for part in self.run(script, figure, at_s, value))

    def wait_for_colour(self, figure: str, at_s: float, value: float, colour: str) -> None:
        """Wait until a point has the colour: Bokeh paints some time after a click."""
        self.wait_for(
            lambda: self.colour(figure, at_s, value) == colour,
            f"{figure}: no {colour} at {at_s}, {value}",
        )

    def wait_for_change(self, figure: str, at_s: float, value: float, colour: str) -> str:
        """Wait until a point does not have the colour any more; return its new colour."""
        found: str = self.wait_for(
            lambda: (seen := self.colour(figure, at_s, value)) != colour and seen,
            f"{figure}: still {colour} at {at_s}, {value}",
        )
        return found

    def point_at(self, figure: str, at_s: float, value: float) -> str:
        """Move the mouse to a point of a figure and return the tooltip."""
        x, y = self.place(figure, at_s, value)
        left, top = self.run(
            f"{_VIEW} view.el.scrollIntoView({{block: 'center'}});"
            "const box = view.el.getBoundingClientRect(); return [box.left, box.top]",
            figure,
        )
        mouse = ActionBuilder(self.driver, duration=0)
        mouse.pointer_action.move_to_location(int(left + x) - 3, int(top + y))
        mouse.pointer_action.move_to_location(int(left + x), int(top + y))
        mouse.perform()
        found: str = self.wait_for(lambda: self.run(_TIP), f"{figure}: no tip at {at_s}, {value}")
        return " ".join(found.split())

    def is_near(self, figure: str, at_s: float, value: float, colour: str) -> bool:
        """Return whether a point has the colour, apart from faint lines and seams over it."""
        seen = self.colour(figure, at_s, value)
        channels = ((one[place : place + 2] for place in (1, 3, 5)) for one in (seen, colour))
        return all(
            abs(int(one, 16) - int(other, 16)) <= _NEAR
            for one, other in zip(*channels, strict=True)
        )

    def range(self) -> tuple[float, float]:
        """Return the range of the time axis, in seconds."""
        low, high = self.run("const time = page.model('time'); return [time.start, time.end]")
        return float(low), float(high)

    def click(self, selector: str) -> None:
        self.driver.find_element(By.CSS_SELECTOR, selector).click()

    def complaints(self) -> list[str]:
        """Return all console messages above notices, and all failed requests."""
        return [
            f"{entry['level']}: {entry['message']}"
            for entry in self.driver.get_log("browser")
            if entry["level"] not in {"DEBUG", "INFO"}
        ]

    def requests(self) -> list[str]:
        """Return the URLs that the page requested, except its own."""
        entries = self.driver.get_log("performance")
        events = [json.loads(entry["message"])["message"] for entry in entries]
        urls = [
            event["params"]["request"]["url"]
            for event in events
            if event["method"] == "Network.requestWillBeSent"
        ]
        return [url for url in urls if url != self.driver.current_url]

    def screenshot(self, path: Path) -> None:
        self.driver.save_screenshot(str(path))


@contextmanager
def browser(width: int = 1400, height: int = 1000) -> Iterator[Page]:
    options = ChromeOptions()
    options.binary_location = shutil.which("chromium") or "chromium"
    for argument in (
        "--headless=new",
        "--no-sandbox",  # tests may run as root
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
        f"--window-size={width},{height}",
        "--hide-scrollbars",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    service = Service(executable_path=shutil.which("chromedriver") or "chromedriver")
    driver = Chrome(options=options, service=service)
    driver.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})
    try:
        yield Page(driver)
    finally:
        driver.quit()
