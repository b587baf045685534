"""Fenced blocks and inline commands of the documents."""

import pathlib
import re
import shlex

ROOT = pathlib.Path(__file__).resolve().parents[2]

# What a line of commands begins with. A block of which each line does is a list of commands.
PROGRAMS = ("weir", "make", "smbclient", "gcloud", "export", "curl", "sudo", "nfs-ls", "nfs-cp", "nfs-cat", "openssl", "kill", "cp",
            "rsync", "terraform", "ansible-playbook", "promtool", "pip", "python3")


def documents():
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def without_comment(line):
    """A line without the comment behind it; `#` in quotation marks is none."""
    quote = None
    for at, char in enumerate(line):
        if quote:
            quote = None if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char == "#" and (at == 0 or line[at - 1].isspace()):
            return line[:at].rstrip()
    return line.rstrip()


class Command:
    """A command line and, in a session, what is shown below it."""

    def __init__(self, text, line):
        self.text, self.line, self.shown = text, line, []


class Block:
    """A fenced block."""

    def __init__(self, document, line, language, lines):
        self.document, self.line, self.language, self.lines = document, line, language, lines
        self.commands = self.read()

    def __str__(self):
        return f"{self.document}:{self.line}"

    @property
    def text(self):
        return "\n".join(self.lines) + "\n"

    def read(self):
        """The commands of a session (`$ …` and what it prints) or of a list; none if it is neither."""
        if self.language not in ("", "sh", "shell", "bash", "console"):
            return []
        if any(line.startswith("$ ") for line in self.lines):
            found = []
            for at, line in enumerate(self.lines, self.line + 1):
                if line.startswith("$ "):
                    found.append(Command(line[2:], at))
                elif found and found[-1].text.endswith("\\"):
                    found[-1].text = found[-1].text[:-1] + line.strip()
                elif found:
                    found[-1].shown.append(line)
            return found
        found, open_line = [], False
        for at, line in enumerate(self.lines, self.line + 1):
            if open_line:
                found[-1].text = found[-1].text[:-1].rstrip() + " " + line.strip()
            elif not without_comment(line):
                continue
            elif line.split()[0] in PROGRAMS:
                found.append(Command(line, at))
            else:
                return []
            open_line = found[-1].text.endswith("\\")
        for command in found:
            command.text = without_comment(command.text)
        return found


def blocks(path):
    found, start, language, lines = [], None, "", []
    for number, line in enumerate(path.read_text().split("\n"), 1):
        if line.startswith("```"):
            if start is None:
                start, language, lines = number, line[3:].strip(), []
            else:
                found.append(Block(str(path.relative_to(ROOT)), start, language, lines))
                start = None
        elif start is not None:
            lines.append(line)
    assert start is None, f"{path}:{start}: the block does not end"
    return found


def inline(path):
    """`weir …` in running text and tables, with its line."""
    fenced = False
    for number, line in enumerate(path.read_text().split("\n"), 1):
        if line.startswith("```"):
            fenced = not fenced
        if fenced:
            continue
        for code in re.findall(r"`([^`]+)`", line):
            if code.startswith("weir "):
                yield number, code.replace("\\|", "|")


def words(text):
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()
