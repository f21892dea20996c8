"""Makes a folder of files with awkward names and prints, one a line, the request targets to ask for."""

import os
import sys
from pathlib import Path
from urllib.parse import quote

NAMES = [
    "plain.txt",
    "with space.txt",
    "two  spaces.txt",
    "percent%.txt",
    "literal%2Fslash.txt",
    "literal%20space.txt",
    "plus+plus.txt",
    "semi;colon,comma.txt",
    "question?mark.txt",
    "hash#mark.txt",
    "amp&ersand=equals.txt",
    "quote'and\"double.txt",
    "back\\slash.txt",
    "brackets[1]{2}(3).txt",
    "at@colon:tilde~.txt",
    "caret^pipe|tick`.txt",
    "umlaut-äöü-ß.txt",
    "日本語.txt",
    "emoji-🚀.bin",
    "..hidden",
    ".env",
    "no-extension",
    "page.html",
    "style.css",
    "sub folder/inner file.txt",
    "sub/inner.txt",
    "sub/deeper/ünder.txt",
]

# Targets that a proxy may be tempted to clean up. What the app makes of them is the app's business.
RAW = [
    "/",
    "/sub",
    "/sub/",
    "/sub%20folder/",
    "/sub%2Finner.txt",
    "/sub%2finner.txt",
    "/%70lain.txt",
    "/./plain.txt",
    "/sub/../plain.txt",
    "/sub/%2e%2e/plain.txt",
    "/sub//inner.txt",
    "/plain.txt?",
    "/plain.txt?x=%2F&y=a%20b&z=a+b&empty=&[k]=v",
    "/plain.txt?next=http://elsewhere.example/a/../b",
    "/plain.txt;parameter=1",
    "/missing.txt",
    "/%E4%B8.txt",
    "/" + "long-" * 800 + ".txt",
]


def main():
    root = Path(sys.argv[1])
    for number, name in enumerate(NAMES):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes((f"file {number}: {name}\n" * (number * 40 + 1)).encode() + os.urandom(64))
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
        print("/" + quote(name, safe="/"))
    (root / "empty.txt").touch()
    print("/empty.txt")
    for target in RAW:
        print(target)


main()
