"""Opens every page of the site in Chromium, without a network, and some of them for a picture: see scripts/site --test."""
import json
import pathlib
import shutil

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

PICTURES = ["index", "mini", "docs/tour", "docs/course/README", "docs/mixed_precision", "reference/index", "reference/amp/grad_scaler",
            "reference/autograd/ops/elementwise/unary"]


def browser():
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for word in ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"]:
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    driver.execute_cdp_cmd("Network.enable", {})
    driver.execute_cdp_cmd("Network.emulateNetworkConditions",
                           {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0})
    return driver


def foreign_requests(driver):
    for entry in driver.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            url = message["params"]["request"]["url"]
            if not url.startswith(("file:", "data:", "blob:", "chrome:", "about:")):
                yield url


def size(driver, width, height=1000):
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                           {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600})


def faults(driver):
    """What the page itself shows that it must not."""
    wide = driver.execute_script("return document.documentElement.scrollWidth - document.documentElement.clientWidth")
    if wide > 1:
        yield f"{wide} pixels too wide for a telephone"
    for source in driver.execute_script("return [...document.images].filter(i => !i.complete || !i.naturalWidth || !i.alt).map(i => i.src)"):
        yield f"an image that does not load, or has no text: {source}"


def search(driver, root):
    driver.get((root / "search.html").as_uri() + "?q=GradScaler")
    for _ in range(100):
        found = driver.execute_script("return [...document.querySelectorAll('#search-results li a')].map(a => a.href)")
        if len(found) > 3:
            return []
        driver.execute_async_script("setTimeout(arguments[0], 100)")
    return ["search.html: GradScaler is not found"]


def pictures(driver, root, folder):
    folder.mkdir(parents=True, exist_ok=True)
    chapters = sorted(f"docs/course/{p.stem}" for p in (root / "docs/course").glob("[0-9]*.html"))[:2]
    for name in PICTURES + chapters:
        for kind, width, scheme in [("wide", 1400, "light"), ("narrow", 390, "light"), ("dark", 1400, "dark")]:
            size(driver, width)
            driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
            driver.get((root / f"{name}.html").as_uri())
            driver.save_screenshot(str(folder / f"{name.replace('/', '_')}_{kind}.png"))
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print", "features": []})
        driver.save_screenshot(str(folder / f"{name.replace('/', '_')}_print.png"))
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})


def run(root, folder):
    root = pathlib.Path(root).resolve()
    driver, problems = browser(), []
    try:
        size(driver, 390)
        names = sorted(p for p in root.rglob("*.html") if p.name != "lab.html")
        for file in names:
            driver.get(file.as_uri())
            name = file.relative_to(root)
            problems += [f"{name}: {fault}" for fault in faults(driver)]
            problems += [f"{name}: the console says {e['message']}" for e in driver.get_log("browser")]
            problems += [f"{name} asks for {url}" for url in foreign_requests(driver)]
        problems += search(driver, root)
        if folder:
            pictures(driver, root, folder)
    finally:
        driver.quit()
    for problem in problems:
        print(f"site: {problem}")
    print(f"site: {len(names)} pages opened, {len(problems)} faults")
    return 1 if problems or not names else 0
