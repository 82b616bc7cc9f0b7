"""A real browser for tests: the system's Chromium, driven by Playwright, watched for errors and requests."""

import os
import shutil
from contextlib import contextmanager

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
def opened(browser, file, *, width=1200, height=900, dark=False, touch=False):
    """A page from disk. On leaving, it must have logged no error and asked for nothing but itself."""
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light", has_touch=touch
    )
    page = context.new_page()
    problems, asked = [], []
    page.on("console", lambda message: problems.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(file.as_uri())
    page.wait_for_selector("footer p")
    yield page
    context.close()
    assert problems == []
    assert [url for url in asked if not url.startswith(("data:", "blob:"))] == [file.as_uri()]
