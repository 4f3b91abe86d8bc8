"""A grammar of hostile command lines: a dangerous command in every disguise the shell offers, then mutated.

The payloads touch nothing but names in the current directory; the fuzzer replaces the programs by stubs all the same.
"""

# ruff: noqa: E501 - the tables are easier to read in long lines

from __future__ import annotations

import random

__all__ = ["PROGRAMS", "Grammar"]

PROGRAMS = ("rm", "dd", "sudo", "curl", "mkfs", "shred")
_PAYLOADS = ("rm x", "rm -rf x", "rm f", "dd if=f", "sudo ls", "curl f", "mkfs f", "shred f", "rm")
_BENIGN = (
    "ls", "ls f", "cat f", "echo a", "echo 'a b'", 'echo "a b"', "true", "pwd", "grep a f", "sort f", "wc -l f", "head -1 f",
    "test -f f", "[ -f f ]", "[[ -f f ]]", "printf %s a", "find . -name f", "A=1 ls", "cat f | sort", "ls && pwd", "cd d && ls",
    "echo $?", 'echo "$A"', "echo ${A:-b}", "A=1", "export A=1", "mkdir -p d", "touch g", "cp f g", "echo a > g", "cat < f",
    "for i in f g; do cat \"$i\"; done", "if true; then ls; fi", "sed -n 1p f", "awk '{print $1}' f", "ls # c", "seq 3",
    "tr a b < f", "uniq f", "date", "basename f", "set -e", "cat <<'E'\na\nE", "cat <<E\na $A\nE", "(ls)", "{ ls; }", "! false",
)  # fmt: skip
_SEPARATORS = (
    ";",
    " ; ",
    "\n",
    "&&",
    " && ",
    "||",
    " || ",
    "|",
    " | ",
    "&",
    " & ",
    "\n\n",
    ";\n",
    " |& ",
    "\n ",
    "\n\t",
    " #c\n",
    "\\\n",
    " \\\n",
    "\n#c\n",
)
_NAMES = (
    "{0}", '"{0}"', "'{0}'", "\\{0}", "{1}\\{2}", "{1}''{2}", '{1}""{2}', "'{1}'{2}", '{1}"{2}"', "$'{0}'", "$\"{0}\"", "{1}$(){2}",
    "{1}${{Z}}{2}", "{1}``{2}", "$(echo {0})", "`echo {0}`", "{{{0},}}", "{1}\\\n{2}", "\\\n{0}", "{1}$Z{2}", "${{Z:-{0}}}", "{1}{{{2},}}",
)  # fmt: skip
_WRAPPERS = (
    "env {}", "env A=1 {}", "env -i PATH=\"$PATH\" {}", "command {}", "command -p {}", "command -- {}", "builtin command {}", "exec {}",
    "nice {}", "nice -n 1 {}", "timeout 1 {}", "timeout -k 1 1 {}", "nohup {}", "time {}", "time -p {}", "! {}", "coproc {}", "A=1 {}",
    "A=1 B=2 {}", "</dev/null {}", ">g {}", "2>&1 {}", "{} </dev/null", "{} >g", "{} 2>&1", "setsid {}", "stdbuf -oL {}", "xargs {} < f",
    "echo a | xargs {}", "echo a | xargs -n1 {}", "echo a | xargs -I@ {}", "find f -exec {} \\;", "find f -exec {} {{}} +", "find f -exec env {} ';'",
    "command </dev/null {}", "env 2>&1 {}", "env -u A {}", "exec -a a {}", "builtin exec {}", "ls >g {}", "ls <f {}", "ls 2>g\n{}", "ls >g\n{}",
    "\\\n{}", "if {}; then ls; fi", "while {}; do break; done", "until {}; do break; done", "for i in 1; do {}; done", "({})", "{{ {}; }}",
    "f() {{ {}; }}; f", "function f {{ {}; }}; f", "f() ({}); f", "ls() {{ {}; }}; ls", "case a in *) {};; esac", "case a in b) ls;; a) {};; esac",
    "if false; then ls; elif {}; then ls; fi", "if false; then ls; else {}; fi", "[ 1 ] && {}", "[[ 1 ]] && {}", "cd . && {}", "cd d; {}",
    "set -e; {}", "A=1; {}", "export A=1; {}", "ls | {}", "{} | cat", "{} &", "ls & {}", "for i in f; do :; done; {}", "# c\n{}", "ls # c\n{}",
    "cat <<E\na\nE\n{}", "cat <<'E'\na\nE\n{}", "cat <<-E\n\ta\n\tE\n{}", "cat <<E && {}\na\nE", "cat <<E; {}\na\nE", "cat <<E | {}\na\nE",
    "cat <<\"E\"\n$A\nE\n{}", "cat <<\\E\na\nE\n{}", "cat <<E\"F\"\na\nEF\n{}", "cat <<E <<F\na\nE\nb\nF\n{}", "cat <<'E F'\na\nE F\n{}", "cat <<E\nE\n{}\nE",
    "cat <<E\n E\nE\n{}", "echo \"\\\\\"; {}", "echo '\\'; {}", "echo \\'; {}; echo \\'", "echo \\\"; {}; echo \\\"", "echo \"a'b\"; {}; echo 'c'",
    "echo a#b; {}", "echo a\\ # c\n{}", "echo a\\\n#c\n{}", "echo ${{#A}} ; {}", "echo $# ; {}", "echo $'\\''; {}; echo $'\\''", "echo {{a,b}}; {}",
)  # fmt: skip
_TEXTS = (
    "sh -c '{}'", "bash -c '{}'", "bash -c \"{}\"", "sh -c \"{}\"", "bash -ec '{}'", "bash --norc -c '{}'", "eval '{}'", "eval \"{}\"", "eval {}",
    "trap '{}' EXIT", "trap \"{}\" EXIT; ls", "echo '{}' | sh", "echo '{}' > s; sh s", "echo '{}' > s; . ./s", "echo '{}' > s && bash ./s", "sh <<< '{}'",
    "sh <<'E'\n{}\nE", "cat <<'E' | sh\n{}\nE", "echo $({})", "echo \"$({})\"", "echo `{}`", "echo \"`{}`\"", "$({})", "A=$({})", "A=`{}` ls",
    "export A=$({})", "cat <({})", "cat < <({})", "ls > >({})", "echo ${{Z:-$({})}}", "echo ${{Z-`{}`}}", "echo \"${{Z:-$({})}}\"", "echo $((a[$({})]))",
    "echo $(( $({}) ))", "((a[$({})]))", "printf -v 'a[$({})]' 1", "test -v 'a[$({})]'", "[ -v 'a[$({})]' ]", "[[ -v 'a[$({})]' ]]",
    "[[ 'a[$({})]' -eq 1 ]]", "A='a[$({})]'; [[ $A -eq 1 ]]", "A='a[$({})]'; echo $((A))", "A='a[$({})]'; ((A))", "A='-v a[$({})]'; [ $A ]",
    "A='-v a[$({})]'; test $A", "read 'a[$({})]' <<< 1", "unset 'a[$({})]'", "declare 'a[$({})]=1'", "let 'a[$({})]=1'", "a[$({})]=1", "a[$({})]=1 ls",
    "export 'a[$({})]=1'", "A='$({})'; echo ${{A@P}}", "A='$({})'; echo \"${{A@P}}\"", "A='{}'; $A", "A='{}'; eval \"$A\"", "A='{}'; eval $A",
    "A=({}); \"${{A[@]}}\"", "A='a[$({})]'; echo ${{!A}}", "A=abc; echo ${{A:a[$({})]}}", "echo ${{a[$({})]}}", "cat <<E\n$({})\nE", "cat <<E\n`{}`\nE",
    "cat <<E\n${{Z:-$({})}}\nE", "cat <<< $({})", "cat <<< \"$({})\"", "for i in $({}); do ls; done", "case $({}) in *) ls;; esac", "[[ $({}) ]]", "[ $({}) ]",
    "[[ a == $({}) ]]", "[[ a =~ $({}) ]]", "case a in $({})) ls;; esac", "ls > $({})", "ls 2> \"$({})\"", "alias ls='{}'\nls", "shopt -s expand_aliases\nalias l='{}'\nl",
    "PROMPT_COMMAND='{}' bash -c ls", "PS4='$({})' bash -xc ls", "BASH_ENV=<(echo '{}') bash -c ls", "mapfile -C '{}' -c 1 < f", "coproc {{ {}; }}; wait",
    "select i in a; do {}; done < f", "for ((i=0; i<1; i++)); do {}; done", "if [[ a ]]; then {}; fi", "time {{ {}; }}", "{{ {}; }} > g", "({}) 2>&1",
    "! {{ {}; }}", "f() {{ {}; }}; trap f EXIT", "sh -c 'sh -c \"{}\"'", "bash -c 'eval \"{}\"'", "env sh -c '{}'", "xargs sh -c '{}' < f", "find f -exec sh -c '{}' \\;",
    "awk 'BEGIN {{ system(\"{}\") }}'", "sed '1e {}' f", "sed 's/.*/{}/e' f", "sort --compress-program=rm -S1b f", "make -f <(echo 'a:; {}')", "git -c alias.x='!{}' x",
    "tee s <<< '{}'; sh s", "printf '%s' '{}' | bash", "cp f s; echo '{}' >> s; sh ./s", "echo '{}' | xargs -I@ sh -c @", "echo '{}' | while read -r l; do $l; done",
    "echo '{}' | while read -r l; do eval \"$l\"; done", "read -r l <<< '{}'; $l", "set -- {}; \"$@\"", "set -- {}; $1 $2", "f() {{ \"$@\"; }}; f {}", "command eval '{}'",
    "echo \"$(echo \"$({})\")\"", "echo $(ls; {})", "echo \"a $(ls # c\n{})\"", "cat <(ls) <({})", "echo \"${{Z:-\"$({})\"}}\"", "echo ${{Z/a/$({})}}", "echo ${{Z#$({})}}",
)  # fmt: skip
# Here the dangerous text is only data: these are allowed as they stand, and one lost quote would set it free.
_DATA = (
    "echo '{}'", 'echo "{}"', "echo a '{}' b", "grep '{}' f", "ls # {}", "# {}\nls", "printf %s '{}'", "A='{}' ls", "A='{}'", "echo 'a' '{}' \"b\"",
    "cat <<'E'\n{}\nE", "cat <<'E'\n{}\nE\nls", "cat <<E\n{}\nE", "cat <<-'E'\n\t{}\n\tE", "cat <<'E' | sort\n{}\nE", "git commit -m '{}'", "git commit -m \"{}\"",
    "[[ a == '{}' ]]", "[ a = '{}' ]", "test a = '{}'", "case '{}' in a) ls;; esac", "echo \"a '{}' b\"", "echo 'a \"{}\" b'", "for i in '{}' b; do echo a; done",
    "echo ${{A:-a}} '{}'", "cat <<< '{}'", "ls; echo '{}'; pwd", "ls | grep '{}' | sort", "(echo '{}')", "{{ echo '{}'; }}", "if [ a = '{}' ]; then ls; fi", "echo \\\n '{}'",
    "echo \"$A\" '{}' \"$B\"", "echo $(echo '{}')", "echo \"$(echo '{}')\"", "f() {{ echo '{}'; }}; f", "cat <(echo '{}')", "bash -c 'echo a' '{}'", "sh -c \"echo '{}'\"",
    "sed -n 1p f # {}", "awk '{{print $1}} # {}' f", "find . -name '{}'", "echo '{}' > g", "cat f > g # {}", "echo '{}' | sort", "A=1 B='{}' ls", "echo ''\"{}\"''", "echo a\"{}\"b",
    "[[ 'a' =~ '{}' ]]", "echo '{}'\nls", "ls\n# {}\npwd", "export A='{}'", "eval \"echo '{}'\"", "echo {{a,b}} '{}'", "echo `echo '{}'`", "while false; do echo '{}'; done",
)  # fmt: skip
_DATA_PAYLOADS = (
    "; rm x;", ";rm x", "rm x", "\nrm x\n", " | rm x", "&& rm x &&", "& rm x &", "; rm x #", "|| rm x", "\\\nrm x", "\n rm x #", "; rm x; echo ", "\nE\nrm x\n", "\\;rm x;",
    ";{ rm x; }", ";(rm x)", "\\'; rm x; ", "\\\"; rm x; ", "! rm x", "\n\\rm x\n", "; \\rm x;", "a\n\\rm x",
)  # fmt: skip
_TRICKS = " \t\n\\'\"`$(){}[]<>|&;#!*?=,-a1"


class Grammar:
    """Makes command lines from a seed; the same seed gives the same lines."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)

    def line(self) -> str:
        """Make one line; about half are mutated."""
        if self._dice.random() < 0.5:
            return self._data()
        text = self._nested(self._dice.randint(0, 3))
        if self._dice.random() < 0.35:
            text = f"{self._dice.choice(_BENIGN)}{self._dice.choice(_SEPARATORS)}{text}"
        if self._dice.random() < 0.25:
            text = f"{text}{self._dice.choice(_SEPARATORS)}{self._dice.choice(_BENIGN)}"
        for _ in range(self._dice.choice((0, 0, 0, 1, 1, 2, 4))):
            text = self._mutated(text)
        return text

    def _data(self) -> str:
        """Make a line that holds the dangerous text as data, and break its quoting here and there."""
        text = self._dice.choice(_DATA).format(self._dice.choice(_DATA_PAYLOADS))
        if self._dice.random() < 0.2:
            text += self._dice.choice(_SEPARATORS) + self._dice.choice(_DATA).format(
                self._dice.choice(_DATA_PAYLOADS)
            )
        for _ in range(self._dice.choice((0, 1, 1, 1, 2, 2, 3))):
            text = self._mutated(text)
        return text

    def templates(self) -> list[str]:
        """Every disguise once, unmutated."""
        return [form.format("rm x") for form in (*_WRAPPERS, *_TEXTS)]

    def _nested(self, depth: int) -> str:
        if depth == 0:
            return self._payload() if self._dice.random() < 0.8 else self._dice.choice(_BENIGN)
        inner = self._nested(depth - 1)
        return self._dice.choice(_WRAPPERS if self._dice.random() < 0.5 else _TEXTS).format(inner)

    def _payload(self) -> str:
        name, blank, rest = self._dice.choice(_PAYLOADS).partition(" ")
        form = self._dice.choice(_NAMES) if self._dice.random() < 0.4 else "{0}"
        return form.format(name, name[0], name[1:]) + blank + rest

    def _mutated(self, text: str) -> str:
        place = self._dice.randrange(len(text) + 1)
        choice = self._dice.random()
        if choice < 0.55:
            return text[:place] + self._dice.choice(_TRICKS) + text[place:]
        if choice < 0.75:
            return text[:place] + text[place + 1 :]
        other = self._dice.randrange(len(text) + 1)
        low, high = sorted((place, other))
        return text[:high] + text[low:high] + text[high:] if choice < 0.85 else text[:low] + text[high:]
