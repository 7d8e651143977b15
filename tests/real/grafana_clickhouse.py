"""Fills in a query as Grafana's ClickHouse data source 4.20 does: first its variables (`applyConditionalAll` and `replace` in
src/data/CHDatasource.ts, the formats of Grafana's own `registry.ts`), then its macros (pkg/macros/macros.go)."""

import re

# The value of a variable with All chosen.
ALL = "$__all"
CONDITIONAL = "$__conditionalAll("
VARIABLE = re.compile(r"\$(?:\{(\w+)(?::(\w+))?\}|(?!__)(\w+))")


def filled_in(sql, variables, since, until, step):
    """Returns the statement. Times are in milliseconds since 1970, `step` is the panel's interval in seconds."""
    return with_macros(with_variables(conditions(sql, variables), variables), since, until, step)


def conditions(sql, variables):
    while (at := sql.rfind(CONDITIONAL)) >= 0:
        condition, name = arguments(sql[at + len(CONDITIONAL) :])
        value = variables[re.search(r"\w+", name)[0]]
        kept = "1=1" if value in (ALL, "", []) else condition
        sql = sql.replace(f"{CONDITIONAL}{condition},{name})", kept, 1)
    return sql


def arguments(text):
    """Returns the arguments of a macro, of which `text` is the rest after its opening parenthesis."""
    found, begin, depth = [], 0, 1
    for at, letter in enumerate(text):
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if depth == 0 or (depth == 1 and letter == ","):
            found.append(text[begin:at])
            begin = at + 1
        if depth == 0:
            return found
    raise ValueError(f"no end of a macro: {text}")


def with_variables(sql, variables):
    def value_of(found):
        name, form = found[1] or found[3], found[2]
        return FORMATS[form](variables[name])

    return VARIABLE.sub(value_of, sql)


def quoted(value):
    values = [value] if isinstance(value, str) else value
    return ",".join("'{}'".format(one.replace("'", "''")) for one in values)


# The data source itself formats a variable that names no format, and quotes without escaping: a dashboard must not rely on it.
FORMATS = {"raw": lambda value: value, "sqlstring": quoted}


def with_macros(sql, since, until, step):
    begin, end = f"fromUnixTimestamp64Milli({since})", f"fromUnixTimestamp64Milli({until})"
    macros = {
        r"\$__timeFilter_ms\((\w+)\)": rf"\1 >= {begin} AND \1 <= {end}",
        r"\$__timeInterval\((\w+)\)": rf"toStartOfInterval(toDateTime(\1), INTERVAL {step} second)",
        r"\$__fromTime_ms\b": begin,
        r"\$__toTime_ms\b": end,
    }
    for macro, meaning in macros.items():
        sql = re.sub(macro, meaning, sql)
    return sql
