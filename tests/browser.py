"""A real browser for tests: the system's Chromium, driven by Playwright, watched for errors and requests.

`python tests/browser.py runs/demo-8-6000/page/index.html docs/figures` takes the pictures of docs/report.md.
"""

import io
import os
import shutil
import sys
from contextlib import contextmanager
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find_chromium():
    """The program, or None. The variable CHROMIUM names another one."""
    return shutil.which(os.environ.get("CHROMIUM", "")) or next(filter(None, map(shutil.which, NAMES)), None)


@contextmanager
def chromium():
    """A running headless browser."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # Root, as in a container, gets no sandbox; and there is no GPU to draw with.
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@contextmanager
def opened(browser, file, *, width=1200, height=900, dark=False, touch=False, scale=1, motion=False, part=""):
    """A page from disk, at #part. On leaving, it must have logged no error and asked for nothing but itself."""
    context = browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme="dark" if dark else "light",
        has_touch=touch,
        device_scale_factor=scale,
        reduced_motion="no-preference" if motion else "reduce",
    )
    page = context.new_page()
    problems, asked = [], []
    page.on("console", lambda message: problems.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(file.as_uri() + part)
    page.wait_for_selector("footer p")
    yield page
    context.close()
    assert problems == []
    assert [url for url in asked if not url.startswith(("data:", "blob:"))] == [file.as_uri()]


def take_pictures(file, folder):
    """The pictures of docs/report.md, of a page that `cta demo` wrote."""
    laptop, phone = {"width": 1366, "height": 768}, {"width": 390, "height": 844, "touch": True}
    with chromium() as browser:
        with opened(browser, file, **laptop, scale=1.5) as page:
            _save([_seen(page, "#top")], folder / "report-top.png")
            page.add_style_tag(content="nav { display: none }")
            _choose_detour(page)
            _halfway(page)
            page.set_viewport_size({"width": 1200, "height": 720})
            _save([_seen(page, "#rollouts")], folder / "report-rollouts.png")
            page.set_viewport_size({"width": 1200, "height": 1540})
            _save([_seen(page, "#map")], folder / "report-map.png")
        with opened(browser, file, **laptop, dark=True, scale=1.5) as page:
            _save([_seen(page, "#top")], folder / "report-dark.png")
        phones = []
        for part, dark in (("#top", False), ("#rollouts", False), ("#map .maps, #map .map", True)):
            with opened(browser, file, **phone, dark=dark, scale=2) as page:
                _halfway(page)
                phones.append(_seen(page, part, above=0 if part == "#top" else 12))
        _save(phones, folder / "report-phone.png")


def _choose_detour(page):
    """The first episode from the one that is open on in which somebody made a detour; else that one."""
    choice = page.locator("#rollouts select").first
    opened_with = choice.input_value()
    keys = choice.locator("option").evaluate_all("nodes => nodes.map(node => node.value)")
    for key in keys[keys.index(opened_with) :]:
        choice.select_option(key)
        if "The detour:" in page.inner_text("#rollouts"):
            return
    choice.select_option(opened_with)


def _halfway(page):
    """Rollouts in the middle of what happens."""
    slider = page.locator("#rollouts input[type=range]").first
    firsts = [part.locator(".event").first for part in page.locator("#rollouts .events").all()]
    steps = [int(first.locator(".at").inner_text()) for first in firsts if first.count()]
    slider.fill(str(max(steps, default=int(slider.get_attribute("max")) // 2)))
    slider.blur()


def _seen(page, part, *, above=0):
    """The window as a PNG, scrolled to a part of the page."""
    page.eval_on_selector(
        part,
        "(node, above) => scrollTo({ top: scrollY + node.getBoundingClientRect().top - above, behavior: 'instant' })",
        above,
    )
    page.wait_for_timeout(300)
    return page.screenshot()


def _save(pictures, path):
    """Pictures side by side, in 256 colours, which is a third of the bytes."""
    from PIL import Image

    images = [Image.open(io.BytesIO(picture)).convert("RGB") for picture in pictures]
    gap, width = 40, sum(image.width for image in images)
    sheet = Image.new("RGB", (width + gap * (len(images) - 1), images[0].height), "#c9ced6")
    left = 0
    for image in images:
        sheet.paste(image, (left, 0))
        left += image.width + gap
    sheet.quantize(256).save(path, optimize=True)
    print(f"{path}: {path.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    take_pictures(Path(sys.argv[1]).resolve(), Path(sys.argv[2]))
