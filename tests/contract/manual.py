#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the manuals, completions and links say, against the programs themselves: every option that a
verb's --help names is in the manual page and in the completions, every verb is, and links lead somewhere.

usage: manual.py WAITGRAPH SOURCE"""
import os
import re
import subprocess
import sys

TOOL, SOURCE = sys.argv[1:3]
failed = []


def text(*path):
    with open(os.path.join(SOURCE, *path), encoding="utf-8") as f:
        return f.read()


def help_of(*args):
    done = subprocess.run([TOOL, *args, "--help"], stdout=subprocess.PIPE, timeout=30, text=True)
    if done.returncode:
        failed.append("%s --help ends with %d" % (" ".join(args), done.returncode))
    return done.stdout


def main():
    # mdoc writes --top as "Fl -top"; several options can stand behind one Fl.
    page = text("docs", "man", "waitgraph.1")
    bash = text("tools", "completions", "waitgraph.bash")
    zsh = text("tools", "completions", "_waitgraph")
    fish = text("tools", "completions", "waitgraph.fish")
    verbs = re.findall(r"^  ([a-z]+) ", help_of(), re.M)
    if len(verbs) < 10:
        failed.append("verbs: %s" % verbs)
    for verb in verbs:
        for name, where in (("the manual page", page), ("bash", bash), ("zsh", zsh), ("fish", fish),
                            ("README.md", text("README.md"))):
            if not re.search(r"\b%s\b" % verb, where):
                failed.append("%s does not know the verb %s" % (name, verb))
        for option in sorted(set(re.findall(r"(?<![\w-])--([a-z][a-z-]+)", help_of(verb)))):
            if option == "help":
                continue
            if not re.search(r"(Fl|,) -%s\b" % option, page):
                failed.append("the manual page does not know %s --%s" % (verb, option))
            if "--%s" % option not in bash:
                failed.append("bash does not know %s --%s" % (verb, option))
            if "--%s" % option not in zsh:
                failed.append("zsh does not know %s --%s" % (verb, option))
            if not re.search(r"\b%s\b" % option, fish):
                failed.append("fish does not know %s --%s" % (verb, option))
    for form in re.findall(r"^  ([a-z-]+) +\S", help_of("export"), re.M):
        for name, where in (("the manual page", page), ("bash", bash), ("zsh", zsh), ("fish", fish)):
            if form not in where:
                failed.append("%s does not know the format %s" % (name, form))
    documents = ["README.md"] + [os.path.join("docs", n) for n in os.listdir(os.path.join(SOURCE, "docs"))
                                 if n.endswith(".md")]
    for document in documents:
        for link in re.findall(r"\]\(([^)#]+)[^)]*\)", text(document)):
            if "://" not in link and not os.path.exists(
                    os.path.join(SOURCE, os.path.dirname(document), link)):
                failed.append("%s leads to %s, which is not there" % (document, link))
        for path in re.findall(r"`((?:tools|tests|preload|bpf|docs)/[\w./-]+)`", text(document)):
            if not os.path.exists(os.path.join(SOURCE, path)):
                failed.append("%s names %s, which is not there" % (document, path))
    for line in failed:
        print("wrong:", line)
    if not failed:
        print("ok: %d verbs" % len(verbs))
    return 1 if failed else 0


sys.exit(main())
