"""Fails if a link, a command, a block of Rust or a message in the documents is not true.

Only the standard library, so that `make verify` needs nothing else for it.
"""

import argparse
import html.parser
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
# The README's lines are read on GitHub and in terminals; the two first pages stay short.
LONGEST = {"README.md": 150, "ARCHITECTURE.md": 150}
WIDEST = 100

# Programs of others, which are not run here: `words that a command begins with` -> who runs it instead.
ELSEWHERE = {
    "etcdctl": "crates/rallypoint/tests/it/etcdctl.rs runs etcdctl against our server",
    "export ETCDCTL_API": "belongs to etcdctl",
    "pip install target/wheel": "make test-wheel installs the wheel",
    "torchrun": "tests/torch runs torchrun with both backends",
    "mooncake_master": "tests/frameworks/test_etcd_clients.py runs two of them",
    "srun": "tests/slurm submits the line of the guide, examples/slurm/train.sh",
    "cargo run --release --example": "crates/rallypoint/tests/it/examples.rs runs the examples",
    "cargo run --release -- run": "crates/rallypoint/tests/it/launch/first_command.rs runs it",
    "source <(rallypoint completions": "crates/rallypoint/tests/it/completions.rs sources it",
    "docker": "tests/package/test_files.py checks the Dockerfile; no test has an engine",
    "cargo install --path": "installs into the user's home",
}

# The test that compiles the Rust blocks of the pages.
BOOK = "crates/rallypoint/tests/it/book.rs"

# Calls of etcd that the server refuses.
REFUSED = {"MemberAdd", "MemberPromote", "MemberRemove", "MemberUpdate", "MoveLeader"}

# Names of others.
OTHERS = REFUSED | {"JobSet", "PyTorchJob", "TrainJob", "KillWait", "LookupError", "SlurmdTimeout", "TCPStore"}

errors = []


def wrong(page, line, what):
    errors.append(f"{page.relative_to(ROOT)}:{line}: {what}")


def blocks(text):
    """The fenced blocks of a page: the language, the number of the first line, and the lines."""
    language, first, found = None, 0, []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.startswith("```"):
            if language is not None:
                found.append(line)
        elif language is None:
            language, first, found = line[3:].strip(), number + 1, []
        else:
            yield language, first, found
            language = None


def prose(text):
    """The lines outside of fenced blocks, with their numbers, and without `code`."""
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("```"):
            fenced = not fenced
        elif not fenced:
            yield number, line


def anchors(page):
    """The headings of a page as links name them, on GitHub and in mdBook alike."""
    names, seen = set(), {}
    for _, line in prose(page.read_text()):
        heading = re.match(r"#+ (.*)", line)
        if heading:
            name = re.sub(r"[^\w\- ]", "", heading[1].strip().lower()).replace(" ", "-")
            count = seen.setdefault(name, 0)
            names.add(f"{name}-{count}" if count else name)
            seen[name] += 1
    return names


def check_links(page):
    for number, line in prose(page.read_text()):
        for target in re.findall(r"\[[^\]]*\]\(([^)\s]+)\)", re.sub(r"`[^`]*`", "``", line)):
            if re.match(r"[a-z]+:", target):
                continue
            path, _, anchor = target.partition("#")
            file = (page.parent / path).resolve() if path else page
            if not file.exists():
                wrong(page, number, f"there is no {target}")
            elif anchor and anchor not in anchors(file):
                wrong(page, number, f"{file.relative_to(ROOT)} has no heading #{anchor}")


def check_pictures(page):
    """Files that are shown by HTML are there."""
    for number, line in prose(page.read_text()):
        for target in re.findall(r'\b(?:src|srcset)="([^"]*)"', re.sub(r"`[^`]*`", "``", line)):
            if not re.match(r"[a-z]+:", target) and not (page.parent / target).is_file():
                wrong(page, number, f"there is no picture {target}")


def check_names(page):
    """Paths of this repository that are named as code exist."""
    heads = r"(?:crates|docs|scripts|tests|examples)"
    for number, line in prose(page.read_text()):
        for name in re.findall(rf"`({heads}/[\w./*{{}},-]+)`", line):
            for one in expand(name):
                if not any(list(root.glob(one.rstrip("/"))) for root in (ROOT, ROOT / "crates/rallypoint")):
                    wrong(page, number, f"there is no {one}")


def check_tests(page):
    """Tests that are named as code, such as `it::launch::exit_codes`, exist."""
    for number, line in prose(page.read_text()):
        for name in re.findall(r"`((?:it|conformance)::[\w:]+)`", line):
            place = ROOT / "crates/rallypoint/tests"
            text = None
            for part in name.split("::"):
                if text is None and (place / part).is_dir():
                    place /= part
                elif text is None and (place / f"{part}.rs").exists():
                    text = (place / f"{part}.rs").read_text()
                elif text is None or not re.search(rf"\b{part}\b", text):
                    wrong(page, number, f"there is no test {name}")
                    break


def expand(name):
    braces = re.search(r"\{([^}]*)\}", name)
    if not braces:
        return [name]
    before, after = name[: braces.start()], name[braces.end() :]
    return [one for part in braces[1].split(",") for one in expand(before + part + after)]


def commands(lines):
    """The commands of a console block, continued lines joined, with the number of their line in it."""
    index = 0
    while index < len(lines):
        start, line = index, lines[index]
        index += 1
        if not line.startswith("$ "):
            continue
        while line.endswith("\\") and index < len(lines):
            line = line[:-1] + " " + lines[index].strip()
            index += 1
        yield start, line[2:]


def check_command(page, number, command, rallypoint):
    for begin in ELSEWHERE:
        if command.startswith(begin):
            used.add(begin)
            # What is handed to our own program is still looked at.
            if " -- run " in command:
                check_rallypoint(page, number, shlex.split(command.split(" -- ", 1)[1]), rallypoint)
            elif "rallypoint run" in command:
                check_rallypoint(page, number, shlex.split(command.split("rallypoint ", 1)[1]), rallypoint)
            check_files(page, number, command)
            return
    words = shlex.split(command, comments=True)
    # Variables before a command.
    while words and re.match(r"[A-Z_]+=", words[0]):
        words.pop(0)
    if words[0] == "make":
        goals = [word for word in words[1:] if "=" not in word]
        for goal in goals:
            if not re.search(rf"^{re.escape(goal)}:", (ROOT / "Makefile").read_text(), re.MULTILINE):
                wrong(page, number, f"the Makefile has no {goal}")
        return
    if words[0] == "rallypoint":
        return check_rallypoint(page, number, words[1:], rallypoint)
    wrong(page, number, f"`{command}`: nothing checks this; add it to ELSEWHERE in scripts/docs.py with who runs it")


def check_rallypoint(page, number, words, rallypoint):
    """Our own program accepts the options. A dry run reads everything and starts nothing."""
    elided = [word for word in words if word != "…"]
    command, rest = elided[0], elided[1:]
    if command == "run":
        # The machine that checks need not have GPUs.
        rest = ["2" if word == "gpu" else word for word in rest if word != "--dry-run"]
        arguments = ["run", "--dry-run", *rest]
    else:
        # There is no dry run of these: the options are read before help is shown, up to the first that is unknown.
        arguments = [command, *rest, "--help"]
        known = run([rallypoint, *arguments]).stdout
        for option in [word.split("=")[0] for word in rest if word.startswith("--")]:
            if not re.search(rf"(?<!\S){re.escape(option)}\b", known):
                wrong(page, number, f"rallypoint {command} has no {option}")
    ended = run([rallypoint, *arguments])
    if ended.returncode:
        wrong(page, number, f"rallypoint {' '.join(arguments)}: {ended.stderr.strip()}")


def run(command):
    # The environment of a scheduler would be read.
    environment = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"}
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT, timeout=60)


def check_files(page, number, command):
    for name in re.findall(r"\bexamples/[\w./-]+", command):
        if not (ROOT / name).exists():
            wrong(page, number, f"there is no {name}")


def check_size(page):
    # Figures are written by `make bench-peers`, and their plots take some lines of HTML.
    written = re.compile(r"<!-- figures: (\w+) -->.*?<!-- /figures: \1 -->\n", re.DOTALL)
    lines = written.sub("", page.read_text()).splitlines()
    most = LONGEST.get(page.name) if page.parent == ROOT else None
    if most is None:
        return
    if len(lines) > most:
        wrong(page, len(lines), f"{len(lines)} lines, and {most} are the most")
    for number, line in enumerate(lines, 1):
        if len(line) > WIDEST and not line.startswith(("|", "$ ")):
            wrong(page, number, f"{len(line)} characters; only tables and commands may have more than {WIDEST}")


def check_rust(page):
    """Rust blocks are compiled: each stands in a test, where only the white space may differ."""
    compiled = " ".join((ROOT / BOOK).read_text().split())
    for language, first, lines in blocks(page.read_text()):
        if language.split(",")[0] in ("rust", "rs") and " ".join(" ".join(lines).split()) not in compiled:
            wrong(page, first, f"this block is not in {BOOK}, which compiles the blocks of the book: add it there")


def check_summary():
    """Every page is in the table of contents."""
    docs = ROOT / "docs"
    listed = {docs / path for path in re.findall(r"\]\(([^)]+)\)", (docs / "SUMMARY.md").read_text())}
    for page in docs.rglob("*.md"):
        if page.name != "SUMMARY.md" and page not in listed:
            wrong(page, 1, "is not in docs/SUMMARY.md")


def all_sources():
    """The text of all sources, with strings that go on in the next line in one."""
    files = [*(ROOT / "crates").glob("*/src/**/*.rs"), *(ROOT / "crates/py/python").rglob("*.py*")]
    text = "\n".join(file.read_text() for file in files if file.suffix in (".rs", ".py", ".pyi"))
    return re.sub(r"\\\n\s*", "", text)


def check_identifiers(page):
    """Types and functions that are named as code are somewhere in the sources, or are PyTorch's."""
    text = page.read_text()
    named = set()
    for _, line in prose(text):
        for name in re.findall(r"`((?:rallypoint::|[A-Z][a-z]+[A-Z])[\w:]*)", line):
            named.update(name.split("::"))
    for language, _, lines in blocks(text):
        if language == "rust":
            for names in re.findall(r"^use (rallypoint::[^;]*);", "\n".join(lines), re.MULTILINE):
                named.update(re.findall(r"\w+", names))
    for name in sorted(named - OTHERS):
        if name and not re.search(rf"\b{name}\b", sources):
            wrong(page, 1, f"there is no {name} in the sources")


def check_protocol():
    """The page on the protocol has each key, and each field of each document, that the core has."""
    page = ROOT / "docs" / "design" / "protocol.md"
    text = page.read_text()
    core = ROOT / "crates" / "core" / "src"
    keys = re.findall(r'"\{\}(rdzv/[^"]*)"', (core / "rendezvous" / "keys.rs").read_text())
    # A key that ends in a slash is the beginning of others.
    built = {key.replace("{round}", "{n}") for key in keys}
    built = {key for key in built if not key.endswith("/") or not any(other.startswith(key + "{") for other in built)}
    named = set(re.findall(r"`(rdzv/[^`…]*)…?`", text))
    for key in built - named - {"rdzv/v_{n}/"}:
        wrong(page, 1, f"does not name the key {key}")
    for key in named - built:
        wrong(page, 1, f"names a key {key} that the core does not build")
    sections = re.split(r"^### ", text, flags=re.MULTILINE)[1:]
    structs = "".join(file.read_text() for file in core.rglob("*.rs"))
    assert len(sections) >= 9, "the documents were not found"
    for section in sections:
        section = section.split("\n## ")[0]
        name = section.split("\n")[0]
        found = re.search(rf"^pub struct {name} {{\n(.*?)^}}", structs, re.MULTILINE | re.DOTALL)
        if not found:
            wrong(page, 1, f"the core has no document {name}")
            continue
        fields = set()
        for flatten, field, kind in re.findall(r"(#\[serde\(flatten\)\]\s+)?pub (\w+): (\w+)", found[1]):
            if not flatten:
                fields.add(field)
            elif kind != "Extra":
                inner = re.search(rf"^pub struct {kind} {{\n(.*?)^}}", structs, re.MULTILINE | re.DOTALL)
                fields.update(re.findall(r"pub (\w+):", inner[1]))
        cells = [line.split(" | ")[0] for line in section.splitlines() if line.startswith("| `")]
        told = {field for cell in cells for field in re.findall(r"`(\w+)`", cell)}
        if told != fields:
            wrong(page, 1, f"{name}: {', '.join(sorted(told ^ fields))}: in the page or in the core alone")
    for value in re.findall(r'`"(\w+)"`', text):
        variant = "".join(word.capitalize() for word in value.split("_"))
        if not re.search(rf'^    {variant}(?:,| {{)$|"{value}"', structs, re.MULTILINE):
            wrong(page, 1, f"the core has no value {value}")


def check_variables():
    """The page on the environment has the variables that the sources read, and no others."""
    page = ROOT / "docs" / "reference" / "environment.md"
    named = set(re.findall(r"`([A-Z][A-Z0-9_]{3,})`", page.read_text()))
    scripts = "".join(file.read_text() for file in (ROOT / "scripts").iterdir() if file.is_file())
    for variable in sorted(named):
        if variable not in sources + scripts:
            wrong(page, 1, f"nothing reads or sets {variable}")
    read = set(re.findall(r'"((?:RALLYPOINT|TORCH_ELASTIC|TORCHELASTIC|OMPI_COMM)_[A-Z_]+)"', sources))
    for variable in sorted(read - named):
        is_prefix = variable.endswith("_") and any(name.startswith(variable) for name in named)
        if "_TEST_" not in variable and not is_prefix:
            wrong(page, 1, f"does not name {variable}")
    targets = (ROOT / "crates/rallypoint/src/log_target.rs").read_text()
    for target in re.findall(r'= "(rallypoint::\w+)"', targets):
        if f"`{target}`" not in page.read_text():
            wrong(page, 1, f"does not name the log target {target}")


def check_messages():
    """The longest part of each message that has no values in it is somewhere in the sources."""
    page = ROOT / "docs" / "troubleshooting.md"
    found = 0
    for number, line in prose(page.read_text()):
        cells = line.split(" | ")
        if len(cells) != 3:
            continue
        for message in re.findall(r"`([^`]+)`", cells[1]):
            found += 1
            # Numbers, addresses, names in quotes, and what is left out.
            parts = re.split(r"\S*\d\S*|\"[^\"]*\"|\bhead\b|min:max nodes|\bnode1\S*|…|: (?=[A-Z])|; ", message)
            part = max((part.strip(" ,:()") for part in parts), key=len)
            if part not in sources:
                wrong(page, number, f"nothing says {part!r}")
    assert found > 10, "the table was not found"


class Page(html.parser.HTMLParser):
    """The links and the ids of a page of the book."""

    def __init__(self, text):
        super().__init__()
        self.links, self.ids = set(), set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.ids.add(attributes.get("id"))
        if tag == "a" and "href" in attributes:
            self.links.add(attributes["href"])
        if tag in ("img", "source"):
            self.links.update(attributes[name] for name in ("src", "srcset") if name in attributes)


def point_to_repository(book):
    """Links of the book to files beside it lead to the repository, whose address is in Cargo.toml."""
    repository = re.search(r'^repository = "([^"]*)"', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)[1]
    docs = ROOT / "docs"
    for path in book.rglob("*.html"):
        place = (docs / path.relative_to(book)).parent

        def outside(link, place=place):
            target, hash_mark, anchor = link[1].partition("#")
            file = (place / target).resolve()
            if re.match(r"[a-z]+:", target) or not target or docs in file.parents or ROOT not in file.parents:
                return link[0]
            # mdBook takes every page for one of its own.
            found = next((one for one in (file, file.with_suffix(".md")) if one.exists()), None)
            if found is None:
                return link[0]
            kind = "tree" if found.is_dir() else "blob"
            return f'href="{repository}/{kind}/main/{found.relative_to(ROOT)}{hash_mark}{anchor}"'

        text = path.read_text()
        path.write_text(re.sub(r'href="([^"]*)"', outside, text))


def check_book(book):
    """Links within the book lead to pages and headings that it has; those to files of the repository were checked."""
    pages = {path.resolve(): Page(path.read_text()) for path in book.rglob("*.html")}
    for path, page in pages.items():
        for link in page.links:
            target, _, anchor = link.partition("#")
            file = (path.parent / target).resolve() if target else path
            if re.match(r"[a-z]+:", link) or path.name in ("print.html", "404.html"):
                continue
            # mdBook copies the other files of docs/ beside its pages.
            if file not in pages and file.is_file() and not anchor:
                continue
            if file not in pages:
                errors.append(f"{path.relative_to(book)}: the book has no {link}")
            elif anchor and anchor not in pages[file].ids:
                errors.append(f"{path.relative_to(book)}: {file.relative_to(book)} has no #{anchor}")
    assert len(pages) > 20, "the book was not found"


parser = argparse.ArgumentParser()
parser.add_argument("--rallypoint", required=True, help="the program whose options are checked")
parser.add_argument("--book", required=True, type=Path, help="the book as it was built")
arguments = parser.parse_args()
rallypoint, book = arguments.rallypoint, arguments.book.resolve()
used, checked = set(), 0
sources = all_sources()
for page in PAGES:
    check_links(page)
    check_pictures(page)
    check_names(page)
    check_identifiers(page)
    check_tests(page)
    check_size(page)
    check_rust(page)
    for language, first, lines in blocks(page.read_text()):
        if language == "console":
            for offset, command in commands(lines):
                checked += 1
                check_command(page, first + offset, command, rallypoint)
check_summary()
check_protocol()
check_variables()
check_messages()
point_to_repository(book)
check_book(book)
for reason in ELSEWHERE.values():
    for name in re.findall(r"(?:crates|tests|examples)/[\w./-]+", reason):
        if not (ROOT / name).exists():
            errors.append(f"scripts/docs.py: there is no {name}, which is said to run a command")
for begin in ELSEWHERE.keys() - used:
    errors.append(f"scripts/docs.py: no document has a command that begins with {begin!r} any more")
for error in errors:
    print(error, file=sys.stderr)
if errors:
    sys.exit(f"docs: {len(errors)} errors")
print(f"docs: {len(PAGES)} pages, {checked} commands, all links lead somewhere")
