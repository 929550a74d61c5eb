#!/usr/bin/env python3
"""Opens the page in a browser, from a file and without a network, and holds it to the same lab outside of it.

    test_page.py LAB.html WEB_LAB [--pictures FOLDER]

Last line: "N passed, N failed".
"""
import argparse
import base64
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import time

import firefox
from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

# Of the weights after 660 steps with the page's first settings, in every browser on every machine.
HASH = "b79a585a8ac35a2a"
passed, failed = 0, 0


def check(what, ok, found=""):
    global passed, failed
    passed, failed = passed + bool(ok), failed + (not ok)
    print(f"{'ok  ' if ok else 'FAIL'} {what}{f': {found}' if found != '' else ''}", flush=True)


def chromium(dark=False, still=False):
    o = webdriver.ChromeOptions()
    o.binary_location = shutil.which("chromium")
    for word in ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
                 "--window-size=1280,1000"]:
        o.add_argument(word)
    if still:
        o.add_argument("--force-prefers-reduced-motion")
    o.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    from selenium.webdriver.chrome.service import Service
    d = webdriver.Chrome(options=o, service=Service(shutil.which("chromedriver")))
    d.execute_cdp_cmd("Emulation.setEmulatedMedia",
                      {"features": [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]})
    d.execute_cdp_cmd("Network.enable", {})
    d.execute_cdp_cmd("Network.emulateNetworkConditions",
                      {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0})
    return d


def wait(d, ready, limit=120):
    end = time.time() + limit
    while time.time() < end:
        found = d.execute_script(f"return {ready}")
        error = d.execute_script("return window.lab.error")
        if found or error:
            return found, error
        time.sleep(0.05)
    return None, f"not within {limit} s"


def finished(d):
    """What the run says when it is done; the error instead if there is one."""
    done, error = wait(d, "window.lab.done")
    return done or {"error": error}


def set_and_run(d, **settings):
    d.execute_script("setValues({...DEFAULTS, ...arguments[0]}); start()", settings)
    return finished(d)


def native(program, **settings):
    out = subprocess.run([program] + [f"{k}={v}" for k, v in settings.items()], check=True, capture_output=True, text=True)
    return json.loads(out.stdout)


def test_training(d, program):
    start = time.time()
    found, error = wait(d, "window.lab.ready")
    check("the library starts", found, error or f"{found:.0f} ms")
    done = finished(d)
    check("660 steps by themselves", done.get("steps") == 660, done)
    print(f"     {time.time() - start:.2f} s, {done['ms']:.2f} ms a step")
    same = native(program)
    check("accuracy as outside the browser", f"{done['accuracy']:.2f}" == f"{same['accuracy']:.2f}", same["accuracy"])
    check("skips as outside the browser", done["skipped"] == same["skipped"] and same["skipped"] > 0, same["skipped"])
    check("the hash of the weights", done["hash"] == HASH, done["hash"])

    unscaled, same = set_and_run(d, precision="fp16"), native(program, precision="fp16")
    check("unscaled float16 fails at weight 1e-5, as outside",
          unscaled["accuracy"] < 30 and same["accuracy"] < 30, f"{unscaled['accuracy']:.2f} and {same['accuracy']:.2f}")
    for settings, low in [({"precision": "fp16", "weight": "1"}, 97), ({"precision": "bf16", "weight": "1e-7"}, 97),
                          ({"law": "fixed", "scale": "4"}, 96), ({"data": "spirals", "steps": "1000"}, 97)]:
        done = set_and_run(d, **settings)
        check(f"trains with {settings}", done.get("accuracy", 0) >= low, done.get("accuracy", done))
    done = set_and_run(d, law="fixed", scale="42")
    check("a fixed scale of 2^42 skips every step", done["skipped"] == 660, done["skipped"])
    done = set_and_run(d, target="90")
    check("stops at an accuracy", done["accuracy"] >= 90 and done["steps"] < 660, done["steps"])


def test_gradients(d):
    set_and_run(d)
    wait(d, "sweepRows !== null")
    layers = d.execute_script("return run.ledger.layers.map(l => ({n: l.exact.numbers + l.exact.zeros, stored: l.stored.numbers +"
                              " l.stored.zeros + l.stored.nans + l.stored.infinities, lost: flushed(l), error: l.error}))")
    # Step 661 is the first of its epoch but for 55 x 12 = 660: a whole batch of 128.
    check("a ledger counts every output", [l["n"] for l in layers] == [128 * 64, 128 * 64, 1280] == [l["stored"] for l in layers])
    rows = d.execute_script("return sweepRows")
    low = [r for r in rows if r["exponent"] == 8][0]
    check("at 2^8 most output gradients are lost, and those of the weights within 20 %",
          all(l["lost"] > 0.7 and l["error"] < 0.2 for l in low["layers"]),
          [(round(l["lost"], 3), round(l["error"], 3)) for l in low["layers"]])
    check("beyond 2^50 all overflow", all(l["error"] is None or l["error"] > 1e9 for l in rows[-1]["layers"]))
    # What the shifted bars say of the output layer is what a pass at that scale does.
    off = d.execute_script("""
      const l = run.ledger.layers.at(-1).exact;
      return Math.max(...sweepRows.filter(r => r.layers.at(-1).lost !== null)
        .map(r => Math.abs(r.layers.at(-1).lost - fates(l, r.exponent).lost / l.numbers)))""")
    check("the bars foretell what the output layer loses", off < 0.002, off)
    d.execute_script("setShift(10)")
    check("the scale of the bars can be moved", "2¹⁰" in d.find_element(By.ID, "t-ledger").text)
    bars = d.find_element(By.ID, "ledger")
    d.execute_script("arguments[0].scrollIntoView({block: 'center'})", bars)
    ActionChains(d, duration=20).click_and_hold(bars).move_by_offset(60, 0).release().perform()
    moved = d.execute_script("return shift")
    check("and the bars be dragged", 12 < moved < 18 and not d.execute_script("return document.getElementById('follow').checked"), moved)


def test_widgets(d):
    d.execute_script("document.getElementById('pad').scrollIntoView()")
    pad = d.find_element(By.ID, "pad")
    strokes = {"1": [[(0, -90), (0, 90)]], "0": [[(-45, 0), (-30, -80), (30, -80), (45, 0), (30, 80), (-30, 80), (-45, 0)]],
               "7": [[(-55, -80), (55, -80), (-15, 85)], [(-45, 0), (45, 0)]]}
    for digit, lines in strokes.items():
        d.find_element(By.ID, "clear").click()
        d.execute_script("document.getElementById('t-digits').replaceChildren()")
        for line in lines:
            move = ActionChains(d, duration=20).move_to_element_with_offset(pad, *line[0]).click_and_hold()
            for (x0, y0), (x1, y1) in zip(line, line[1:]):
                move = move.move_by_offset(x1 - x0, y1 - y0)
            move.release().perform()
        wait(d, "document.getElementById('t-digits').rows.length")
        time.sleep(0.2)
        answer = d.find_element(By.ID, "answer").text
        check(f"a drawn {digit}", f"a {digit}" in answer, answer)
    d.find_element(By.ID, "clear").click()
    pad.send_keys(" " + Keys.ARROW_DOWN * 11 + " ")
    wait(d, "document.getElementById('t-digits').rows.length")
    time.sleep(0.2)
    answer = d.find_element(By.ID, "answer").text
    check("a line drawn by keys", "a 1" in answer, answer)
    halves = d.execute_script("return Array.from({length: 65536}, (_, i) => [decode(FORMATS.float16, i).value,"
                              " encode(FORMATS.float16, decode(FORMATS.float16, i).value)]).map(([v, b]) =>"
                              " [Number.isFinite(v) ? v : String(v), b])")
    exact = [struct.unpack("<e", struct.pack("<H", i))[0] for i in range(65536)]
    wrong = [i for i, (v, b) in enumerate(halves)
             if (v != exact[i] if not isinstance(v, str) else abs(exact[i]) < 1e30) or (v != "NaN" and b != i)]
    check("all 65,536 halves are decoded, and encoded again", not wrong, wrong[:3])
    text = d.execute_script("""return ['65519.99', '65520', '2^-25', '0.1'].map(t => {
      const [x, f] = [numberFrom(t), FORMATS.float16]; return String(decode(f, encode(f, x)).value)}).join(' ')""")
    check("numbers next to the edges", text == "65504 Infinity 0 0.0999755859375", text)
    text = d.execute_script("return [448, 449, 464, 465, 2 ** -10, 2 ** -9].map(x => String(decode(FORMATS.e4m3, encode(FORMATS.e4m3, x)).value)).join(' ')")
    check("float8 E4M3 ends at 448", text == "448 448 448 NaN 0 0.001953125", text)
    d.find_element(By.CSS_SELECTOR, "[data-bit='14']").click()
    check("a bit flips", "normal number" in d.find_element(By.ID, "bits-value").text, d.find_element(By.ID, "bits-value").text)


def test_page(d, url):
    d.get(url + "#precision=bf16&weight=1&steps=100&nonsense=1")
    d.refresh()  # the same file with another fragment is not loaded again by itself
    done = finished(d)
    check("the address sets the run", done.get("steps") == 100 and d.execute_script("return values().precision") == "bf16", done)
    d.execute_script("field('seed').value = 3; field('seed').dispatchEvent(new Event('input', {bubbles: true}))")
    check("the run sets the address", "seed=3" in d.current_url and "weight=1" in d.current_url, d.current_url.split("#")[1])
    d.find_element(By.ID, "reset").click()
    done = finished(d)
    check("reset trains with the first settings", done.get("hash") == HASH, done)
    d.execute_script("setValues({...DEFAULTS, steps: '20000'}); start()")
    wait(d, "run.loss.length > 0")
    d.find_element(By.ID, "pause").click()
    time.sleep(0.3)
    stopped = d.execute_script("return run.loss.length")
    time.sleep(0.3)
    check("a run stops", stopped == d.execute_script("return run.loss.length") and stopped < 20000, stopped)
    d.find_element(By.ID, "pause").click()
    wait(d, f"run.loss.length > {stopped}")
    check("and goes on", d.execute_script("return run.loss.length") > stopped)
    d.execute_script("setValues({...DEFAULTS, widths: '64, 9999'}); start()")
    _, error = wait(d, "false", 5)
    check("a senseless width is refused in words", "expected 1 to 512, found 9999" in str(error), error)
    check("and a run that did not start cannot go on", not d.find_element(By.ID, "pause").is_enabled())
    d.execute_script("window.lab.error = null; send({command: 'resume'})")
    _, error = wait(d, "false", 5)
    check("not even if the worker is asked to", "no run to go on with" in str(error), error)
    done = set_and_run(d, widths="", steps="60")
    check("no hidden layer at all", done.get("accuracy", 0) > 50, done)
    for wrong, name in [("seed=-1", "Seed"), ("steps=50", "after steps"), ("steps=", "after steps"), ("widths=64;64", "Hidden layers"),
                        ("seed=abc", "Seed"), ("lr=5", "Learning rate (Adam)"), ("scale=99", "First scale"), ("data=iris", "Data")]:
        d.get(f"{url}#{wrong}")
        d.refresh()
        wait(d, "window.lab.ready")
        text = d.find_element(By.ID, "status").text
        check(f"an address with {wrong} is refused in words", text.startswith(f"Not started. {name}: "), text)
    d.get(url + "#precision=fp16&interval=0")
    d.refresh()
    done = finished(d)
    check("a field that is switched off does not matter", done.get("steps") == 660, done)
    labels = d.execute_script("""return [...document.querySelectorAll('input, select, button, canvas, svg[role], table')]
      .filter(e => !(e.labels?.length || e.ariaLabel || e.getAttribute('aria-label') || e.textContent.trim() || e.caption || e.tagName === 'TABLE'))
      .map(e => e.id || e.name)""")
    check("every control and picture has a name", not labels, labels)
    for width in (390, 700, 1280):
        d.set_window_size(width, 900)
        wide = d.execute_script("return document.documentElement.scrollWidth - innerWidth")
        check(f"nothing sticks out at {width} px", wide <= 0, wide)


def test_reduced_motion(url):
    d = chromium(still=True)
    d.get(url)
    d.execute_script("window.drawings = 0; const draw = drawCurves; drawCurves = () => { ++window.drawings; draw(); }")
    d.execute_script("start()")
    finished(d)
    check("with reduced motion the curves are drawn once", d.execute_script("return window.drawings") == 1)
    d.quit()


def test_firefox(url):
    if not shutil.which("firefox-esr"):
        print("left out: Firefox (Debian: firefox-esr)")
        return
    until_done = """new Promise(found => { const look = () => window.lab.done || window.lab.error
                      ? found(window.lab) : setTimeout(look, 50); look(); })"""
    again = "setValues({...DEFAULTS, precision: 'fp16'}), start()"
    (first, _, unscaled), log = firefox.evaluate(url, [until_done, again, until_done])
    check("Firefox gives the same hash", first["done"] and first["done"]["hash"] == HASH, first)
    check("and fails without a scale", unscaled["done"] and unscaled["done"]["accuracy"] < 30, unscaled)
    check("its console stays empty", not log, log)


def pictures(folder, url):
    """web_light.webp and web_dark.webp, as docs/pictures/ has them; web_narrow*.webp and web_whole.webp to look at."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, dark, width, height in [("light", False, 1280, 1160), ("dark", True, 1280, 1160), ("narrow", False, 390, None),
                                      ("narrow_dark", True, 390, None), ("whole", False, 1280, None)]:
        d = chromium(dark)
        size = {"width": width, "height": height or 1000, "deviceScaleFactor": 1, "mobile": width < 500}
        d.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        d.get(url)
        finished(d)
        wait(d, "sweepRows !== null")
        d.execute_script("stroke(100, 60, 160, 60); stroke(160, 60, 110, 200); recognise()")
        if not height:
            size["height"] = d.execute_script("return document.documentElement.scrollHeight")
            d.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        time.sleep(0.5)
        shot = d.execute_cdp_cmd("Page.captureScreenshot", {"format": "webp", "quality": 80})
        (folder / f"web_{name}.webp").write_bytes(base64.b64decode(shot["data"]))
        d.quit()


def console(d):
    log = [e for e in d.get_log("browser") if e["level"] != "DEBUG"]
    check("the console stays empty", not log, log[:3])
    asked = {json.loads(e["message"])["message"].get("params", {}).get("request", {}).get("url", "")
             for e in d.get_log("performance") if "Network.requestWillBeSent\"" in e["message"]}
    outside = [u for u in asked if u and not u.startswith(("file://", "blob:", "data:"))]
    check("nothing is asked of the network", not outside, outside)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("page", type=pathlib.Path)
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("--pictures", type=pathlib.Path)
    a = parser.parse_args()
    url = a.page.resolve().as_uri()
    d = chromium()
    try:
        d.get(url)
        test_training(d, a.program.resolve())
        test_gradients(d)
        test_widgets(d)
        test_page(d, url)
        console(d)
    finally:
        d.quit()
    test_reduced_motion(url)
    test_firefox(url)
    if a.pictures:
        pictures(a.pictures, url)
    print(f"{passed} passed, {failed} failed")
    sys.exit(failed > 0)


os.environ["SE_OFFLINE"] = "true"
main()
