"""Generates mutants of C++ code, each of which changes one place.

The rules rely on the format of the tree: clang-format puts spaces around binary operators, and none inside template arguments.
"""
import re

# Comments, strings, characters and lines of the preprocessor.
TEXTS = re.compile(r'R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<!\w)\'(?:\\.|[^\'\\\n])+\'|//[^\n]*|/\*.*?\*/'
                   r'|^[ \t]*#(?:[^\n]*\\\n)*[^\n]*', re.DOTALL | re.MULTILINE)
# What tells a person something, and what the compiler decides.
TOLD = re.compile(r"\b(throw|static_assert)\b[^;]*|\b(using|template|case|constexpr|requires)\b[^;{:]*")
TELLING_CALL = re.compile(r"\b(?:fmt::(?:format|print|println)|refuse|fail|warn)\(")
TYPE_SCOPE = re.compile(r'\b(?:namespace|class|struct|union|enum)\b[^(]*$|\bextern\s*"\s*"\s*$')
OPERATORS = {"<": ("<=", ">="), "<=": ("<", ">"), ">": (">=", "<="), ">=": (">", "<"), "==": ("!=",), "!=": ("==",),
             "&&": ("||",), "||": ("&&",), "+": ("-",), "-": ("+",), "*": ("/",), "/": ("*",)}
WORDS = {"min": "max", "max": "min", "true": "false", "false": "true", "rows": "cols", "cols": "rows", "Tensor": "Data", "Data": "Tensor",
         "Pipeline": "Data", "Context": "Data", "Expert": "Data"}
LEAVING = r"(?:return|throw|continue|break|fail|refuse)\b"
PLACE = r"(?:[\w.:()>-]|\[[^\[\]\n]*\])+"
STATEMENT = re.compile(rf"(?![.:?>)\]-])(?:\*?{PLACE}(?:<[\w:, ]*>)?\(.*\)(?:\.\w+)?|\*?{PLACE}(?: [-+*/|&]?= .*|\+\+|--)|(?:\+\+|--){PLACE});")
# Without these a program does the same, more slowly or more politely.
NEEDLESS = re.compile(LEAVING + r"|(?:delete|assert|if|for|while|switch|using|do|else)\b|co_|\(void\)|.*(?:reserve|shrink_to_fit|prefetch|advise|Log)\(")


def mutants_of(text):
    """Returns (offset, old, new, rule) for each mutant, in the order of the text."""
    whole = TEXTS.sub(lambda match: '"' + blank(match[0][1:-1]) + '"' if match[0][0] in "\"'" else blank(match[0]), text)
    code = without_messages(bodies(whole))
    found = set()
    for rule in (operators, words, constants, conditions, statements, results):
        found.update((begin, text[begin:end], new, rule.__name__) for begin, end, new in rule(code))
    found.update((begin, text[begin:end], new, "arguments") for begin, end, new in arguments(code, whole))
    return sorted(found)


def blank(text):
    """Spaces in place of the text: offsets and lines stay."""
    return re.sub(r"[^\n]", " ", text)


def bodies(code):
    """The bodies of functions, and blanks elsewhere."""
    in_code, kept, header, done = [False], [], 0, 0
    for match in re.finditer(r"[{};]", code):
        place, end = match.start(), match.end()
        kept.append(code[done:place] if in_code[-1] else blank(code[done:place]))
        if match[0] == "{":
            opened = code[header:place]
            in_code.append(not TYPE_SCOPE.search(opened) and (in_code[-1] or "(" in opened))
        kept.append(match[0] if in_code[-1] else " ")
        if match[0] == "}" and len(in_code) > 1:
            in_code.pop()
        if match[0] != "}" or not re.compile(r"\s*[,{;)]").match(code, end):  # a member may be initialized with braces before a body
            header = end
        done = end
    return "".join(kept) + blank(code[done:])


def without_messages(code):
    code = TOLD.sub(lambda match: (match[1] or match[2]) + blank(match[0][len(match[1] or match[2]):]), code)
    for match in TELLING_CALL.finditer(code):
        begin = match.end()
        end = max(begin, closing(code, begin - 1))  # `begin` itself is blank if the call is part of another message
        code = code[:begin] + blank(code[begin:end]) + code[end:]
    return code


def closing(code, opening):
    """The place of the parenthesis that closes the one at `opening`."""
    depth = 0
    for match in re.compile(r"[()]").finditer(code, opening):
        depth += 1 if match[0] == "(" else -1
        if depth <= 0:
            return match.start()
    return len(code)


def operators(code):
    texts = {number for number, line in enumerate(code.split("\n")) if '"' in line}
    for match in re.finditer(r"(?<=[\w)\]}\"] )(<=?|>=?|==|!=|&&|\|\||[-+*/])(?=[ \n])", code):
        if match[1] == "+" and code.count("\n", 0, match.start()) in texts:
            continue  # a text is put together
        for new in OPERATORS[match[1]]:
            yield match.start(), match.end(), new
    for match in re.finditer(r"(?<=[\w)\]]) [-+] 1\b(?![.'>])|(?<![\w)\]])!(?=[\w(*:])", code):
        yield match.start(), match.end(), ""
    for match in re.finditer(r"(?:[^=!<>]= |return |[(,] ?)([\w.:>-]+(?:\([^()]*\))?) \? ", code):
        yield match.start(1), match.start(1), "!"


def words(code):
    for match in re.finditer(r"(?<=std::)(?:min|max)(?=_element\b|[(<])|\b(?:true|false)\b|(?<=[.(\[])(?:rows|cols)\b(?!\()"
                             r"|(?<=\bAxis::)(?:Pipeline|Data|Context|Expert|Tensor)\b", code):
        yield match.start(), match.end(), WORDS[match[0]]


def constants(code):
    """Larger constants are mostly sizes of buffers, negative ones mean "none", and those of times are patience: all may change by one."""
    for match in re.finditer(r"(?<![\w.<'-])(?:\d|1[0-6])(?![\w.>']|\s*\?)", code):
        if re.search(r" [-+] $|<[\w:]*, $|(?:seconds|minutes|hours)[({]$", code[max(0, match.start() - 30) : match.start()]):
            continue  # operators() drops + 1; the argument of a template; a time
        alone = code[match.start() - 1] in "[(" and code[match.end()] in "])"
        yield match.start(), match.end(), "0" if alone and match[0] == "1" else str(int(match[0]) + 1)


def conditions(code):
    """Drops guards, and negates conditions without an operator."""
    for match in re.finditer(r"\bif (\()", code):
        end = closing(code, match.start(1))
        condition = code[match.end() : end]
        if ";" in condition or " = " in condition:
            continue  # it declares what the branches use
        if re.match(r"\s*\{?\s*" + LEAVING, code[end + 1 : end + 200]):
            yield match.end(), end, "false"
        elif re.fullmatch(r"[\w.:>()\[\], -]+", condition) and not re.search(r" [->] ", condition):
            yield match.end(), end, f"!({condition})"


def statements(code):
    """Drops calls and assignments that take one line."""
    place, before = 0, ""
    for line in code.split("\n"):
        statement, begin = line.strip(), place + len(line) - len(line.lstrip())
        condition = re.match(r"(?:(?:else )?if|for) (\()", statement)
        ends_another = before in ("{", "}", ";", ")", ":")
        if condition and ends_another:
            body = closing(statement, condition.start(1)) + 2
            statement, begin = statement[body:], begin + body
        if ends_another and STATEMENT.fullmatch(statement) and statement.count("(") == statement.count(")") and not NEEDLESS.match(statement):
            yield begin, begin + len(statement), ";"
        place, before = place + len(line) + 1, line.strip()[-1:] or before


def arguments(code, whole):
    """Swaps neighbouring arguments that have one type, as far as this file tells, or whose names end alike."""
    types = {}
    for match in re.finditer(r"\b((?:const )?[\w:]+(?:<[\w:, ]+>)?[&*]*) (\w+)(?=[,;){]| =)", whole):
        types.setdefault(match[2], match[1])
    for match in re.finditer(r"(?<=[\w>]\()(?=[A-Za-z_])|(?<=[(,] )(?=[A-Za-z_])|(?<=\w, )", code):
        pair = re.compile(r"([A-Za-z_][\w.]*), ([A-Za-z_][\w.]*)(?=[,)])").match(code, match.start())
        if pair and not {pair[1], pair[2]} & {"true", "false", "nullptr"} and pair[1] != pair[2] and (types.get(pair[1], pair[1].split("_")[-1].split(".")[-1])
                                            == types.get(pair[2], pair[2].split("_")[-1].split(".")[-1])):
            yield pair.start(), pair.end(), f"{pair[2]}, {pair[1]}"


def results(code):
    """Returns nothing, zero or an empty value."""
    for match in re.finditer(r"^(.*)\breturn ([^;\n]*[\w)\]]);", code, re.MULTILINE):
        no_value = re.search(r"\](?:\(.*\))? \{ $", match[1]) or re.match(r"\s*[\w:<> ]+& ", match[1])  # a lambda's type, or a reference
        if not no_value and not re.search(r" (?:[-+*/<>?]|[=!<>]=|&&|\|\|) |^[!*]|^(?:true|false|nullptr|\d+|std::nullopt|\w*\{.*)$", match[2]):
            yield match.start(2), match.end(2), "{}"
