"""Runs expressions in a page that Firefox has open, by WebDriver BiDi, which Firefox speaks itself: Debian has no geckodriver."""
import json
import re
import shutil
import subprocess
import tempfile

import trio
from trio_websocket import open_websocket_url


def evaluate(url, expressions):
    """The values of JavaScript expressions, one after the other; promises are awaited. And what the console said."""
    profile = tempfile.mkdtemp()
    browser = subprocess.Popen(["firefox-esr", "--headless", "--no-remote", "--remote-debugging-port=0", "--profile", profile],
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        for line in browser.stdout:
            found = re.search(r"WebDriver BiDi listening on (ws://\S+)", line)
            if found:
                return trio.run(talk, found[1] + "/session", url, expressions)
        raise RuntimeError("Firefox ended without listening")
    finally:
        browser.terminate()
        browser.wait()
        shutil.rmtree(profile, ignore_errors=True)


async def talk(address, url, expressions):
    console, values, number = [], [], 0
    async with open_websocket_url(address, max_message_size=1 << 24) as socket:

        async def ask(method, **params):
            nonlocal number
            number += 1
            await socket.send_message(json.dumps({"id": number, "method": method, "params": params}))
            while True:
                answer = json.loads(await socket.get_message())
                if answer.get("type") == "event":
                    console.append(answer["params"].get("text"))
                elif answer.get("id") == number:
                    if answer["type"] == "error":
                        raise RuntimeError(answer["message"])
                    return answer["result"]

        with trio.fail_after(120):
            await ask("session.new", capabilities={})
            await ask("session.subscribe", events=["log.entryAdded"])
            tab = (await ask("browsingContext.getTree"))["contexts"][0]["context"]
            await ask("browsingContext.navigate", context=tab, url=url, wait="complete")
            for expression in expressions:
                result = await ask("script.evaluate", target={"context": tab}, awaitPromise=True,
                                   expression=f"Promise.resolve({expression}).then(v => JSON.stringify(v ?? null))")
                values.append(json.loads(result["result"]["value"]) if result["type"] == "success" else result)
    return values, console
