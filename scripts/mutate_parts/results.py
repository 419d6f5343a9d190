"""The results of the mutants: one line of JSON each, appended as soon as it is known, and the table."""
import json


class Results:
    def __init__(self, path, keep):
        self.path = path
        self.of_key = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        if keep and path.exists():
            for line in path.read_text().splitlines():
                try:
                    entry = json.loads(line)
                except json.JSONDecodeError:
                    continue  # the last line of a run that was killed
                self.of_key[entry["key"]] = entry
        else:
            path.write_text("")

    def add(self, mutant, result, by, seconds):
        """`result` is killed, survived or invalid; `by` is the test that failed, or the compiler's output."""
        entry = {"key": mutant.key, "mutant": mutant.title, "file": mutant.file, "result": result, "by": by, "seconds": round(seconds, 1)}
        self.of_key[mutant.key] = entry
        with open(self.path, "a") as file:
            file.write(json.dumps(entry) + "\n")

    def of(self, mutant):
        return self.of_key.get(mutant.key)


def state(mutant, entry):
    if entry["result"] == "survived" and mutant.explained:
        return "explained"
    return entry["result"]


def table(mutants, results):
    """Returns Markdown: one row per folder, then the mutants that survived."""
    states = {}
    for mutant in mutants:
        if entry := results.of(mutant):
            states[mutant] = state(mutant, entry)
    lines = ["| folder | mutants | killed | survived, explained | survived | killed % |", "|---|---:|---:|---:|---:|---:|"]
    folders = sorted({mutant.folder for mutant in states})
    for folder in folders:
        lines.append(row(folder, [states[mutant] for mutant in states if mutant.folder == folder]))
    lines.append(row("all", list(states.values())))
    for title, wanted in (("Survived", "survived"), ("Survived, explained", "explained"), ("Do not compile", "invalid")):
        found = [mutant for mutant in states if states[mutant] == wanted]
        if found:
            lines += ["", f"{title}:", ""]
            lines += [f"* {mutant.file}: {mutant.title} ({mutant.place})" + (f". {mutant.explained}" if wanted == "explained" else "")
                      for mutant in found]
    killed_all_the_same = [mutant for mutant in states if mutant.explained and states[mutant] == "killed"]
    if killed_all_the_same:
        lines += ["", "Killed, so the explanation can be removed:", ""]
        lines += [f"* {mutant.file}: {mutant.title} ({mutant.place})" for mutant in killed_all_the_same]
    return "\n".join(lines)


def row(name, states):
    killed, explained, survived = (states.count(what) for what in ("killed", "explained", "survived"))
    valid = killed + explained + survived
    percent = f"{100 * killed / valid:.1f}" if valid else "-"
    return f"| {name} | {valid} | {killed} | {explained} | {survived} | {percent} |"
